// Light or dark: as the system says, until somebody chooses. This runs before the page is drawn, so it is no module.

(() => {
  const NAME = "holdfast.theme";
  const stored = (use) => {
    try {
      return use();
    } catch {
      return null; // it is switched off: then it is as the system says
    }
  };
  let chosen = stored(() => localStorage.getItem(NAME));
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    document.documentElement.dataset.theme = chosen ?? (system.matches ? "dark" : "light");
  };
  apply();
  system.addEventListener("change", apply);
  window.toggleTheme = () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    // What the system says as well need not be remembered: then it follows the system again.
    const isSystem = (chosen === "dark") === system.matches;
    stored(() => (isSystem ? localStorage.removeItem(NAME) : localStorage.setItem(NAME, chosen)));
    if (isSystem) chosen = null;
    apply();
  };
})();
