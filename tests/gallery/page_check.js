// What a reader cannot use: text below 4.5:1 (3:1 where large), text cut off without an ellipsis, a page that scrolls sideways.
() => {
  const rgb = (text) => { const n = (text.match(/[\d.]+/g) || []).map((each, i) => (i < 3 && text.startsWith("color(srgb") ? 255 : 1) * Number(each)); return n.length < 3 ? null : [n[0], n[1], n[2], n.length > 3 ? n[3] : 1]; };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));
  const light = (c) => { const l = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * l[0] + 0.7152 * l[1] + 0.0722 * l[2]; };
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((m, n) => n - m); return (x + 0.05) / (y + 0.05); };
  const above = (element) => element.parentElement ?? element.getRootNode().host ?? null; // components of the page keep their markup in a root of their own
  const backdrop = (element) => {
    const layers = [];
    for (let e = element; e; e = above(e)) { const c = rgb(getComputedStyle(e).backgroundColor); if (c && c[3] > 0) { layers.push(c); if (c[3] === 1) break; } }
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  // What a chart draws under a text: bars, slices and dots are no ancestors of it, so the one that holds its middle is looked for.
  const marks = [...document.querySelectorAll(".js-plotly-plot :is(.point path, path.point, path.surface)")].map((path) => [path, path.getBoundingClientRect()]);
  const filled = (path) => { // a textured bar is filled with a pattern, whose rectangle has the colour
    const fill = getComputedStyle(path).fill, pattern = fill.match(/^url\("?[^"#]*#([^")]+)/);
    const area = pattern && document.getElementById(pattern[1])?.querySelector("rect");
    return pattern ? area && rgb(getComputedStyle(area).fill) : rgb(fill);
  };
  const mark = (box) => {
    const x = box.left + box.width / 2, y = box.top + box.height / 2;
    const found = marks.filter(([path, at]) => at.left <= x && x <= at.right && at.top <= y && y <= at.bottom && filled(path)).pop();
    if (!found) return null;
    const style = getComputedStyle(found[0]), [r, g, b] = filled(found[0]);
    return over([r, g, b, Number(style.fillOpacity) * opacity(found[0])], backdrop(found[0].closest(".js-plotly-plot")));
  };
  const opacity = (element) => { let o = 1; for (let e = element; e; e = above(e)) o *= Number(getComputedStyle(e).opacity); return o; };
  const problems = [];
  const inside = (root) => [root, ...[...root.querySelectorAll("*")].flatMap((e) => (e.shadowRoot ? inside(e.shadowRoot) : []))];
  const texts = (root) => { const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), found = []; while (walker.nextNode()) found.push(walker.currentNode); return found; };
  for (const node of inside(document.body).flatMap(texts)) {
    const text = node.textContent.trim(), element = node.parentElement;
    if (!text || !element || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(element.tagName) || !element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })) continue;
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2 || element.closest("[disabled], [aria-disabled=true], [data-stale=true]")) continue;
    const style = getComputedStyle(element), svg = element instanceof SVGElement;
    const colour = rgb(svg ? style.fill : style.color);
    if (!colour) continue;
    if (/Material/.test(style.fontFamily)) continue; // an icon: its word stands beside it
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    {
      const under = (svg && element.closest(".point, .slice, .textpoint") && mark(box)) || backdrop(element), seen = contrast(over([...colour.slice(0, 3), colour[3] * opacity(element) * (svg ? Number(style.fillOpacity || 1) : 1)], under), under);
      if (seen < (large ? 3 : 4.5) - 0.05) problems.push(`contrast ${seen.toFixed(1)}: ${text.slice(0, 50)}`);
    }
    if (!svg && style.overflowX === "hidden" && style.textOverflow !== "ellipsis" && element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0) problems.push(`cut: ${text.slice(0, 50)}`);
  }
  const main = document.querySelector("[data-testid=stMain]") || document.scrollingElement;
  if (main.scrollWidth > main.clientWidth + 1) problems.push(`scrolls sideways: ${main.scrollWidth} in ${main.clientWidth}`);
  return [...new Set(problems)];
}
