// Light or dark: as the system says, until somebody chooses. This runs before the page is drawn, so it is no module.

(() => {
  const NAME = "holdfast.theme";
  let chosen = null;
  try {
    chosen = localStorage.getItem(NAME);
  } catch {
    // Then it is as the system says.
  }
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
    try {
      if (isSystem) localStorage.removeItem(NAME);
      else localStorage.setItem(NAME, chosen);
    } catch {
      // As above.
    }
    if (isSystem) chosen = null;
    apply();
  };
})();
