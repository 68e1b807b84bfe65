// A line under the pointer, and what was going on there, in words. The picture says the same without it.
(() => {
  const plot = document.getElementById("plot"), readout = document.getElementById("readout");
  const source = document.getElementById("columns"), grid = plot && plot.querySelector(".grid");
  if (!plot || !readout || !source || !grid) return;
  const data = JSON.parse(source.textContent), line = document.createElement("i");
  line.className = "cursor";
  line.hidden = true;
  grid.append(line);
  const clock = (s) => `${Math.floor(s / 60)}:${String(Math.floor(s % 60)).padStart(2, "0")}`;
  const rate = (counts, n) => Math.round(counts[n] / data.width);
  const look = (event) => {
    const box = grid.getBoundingClientRect(), share = (event.clientX - box.left) / box.width;
    line.hidden = share < 0 || share > 1;
    if (line.hidden) return leave();
    line.style.left = `${share * 100}%`;
    const at = share * data.long, n = Math.min(Math.floor(at / data.width), data.ok.length - 1);
    const faults = data.faults.filter(([, spans]) => spans.some(([from, to]) => from <= at && at <= to));
    readout.textContent = `${clock(at)}: ${rate(data.ok, n)} ok, ${rate(data.refused, n)} refused, ` +
      `${rate(data.unknown, n)} unknown, ${rate(data.takeovers, n)} takeovers a second` +
      (faults.length ? `; ${faults.map(([name]) => name).join(", ")}` : "");
  };
  const leave = () => { line.hidden = true; readout.textContent = ""; };
  plot.addEventListener("pointermove", look);
  plot.addEventListener("pointerdown", look);
  plot.addEventListener("pointerleave", leave);
})();
