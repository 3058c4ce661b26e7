// What axe-core calls serious or critical, in our own markup and in Streamlit's. Contrast is page_check.js's: it knows what stands on what.
async () => {
  const found = await axe.run(document, { resultTypes: ["violations"], rules: { "color-contrast": { enabled: false } } });
  const ours = [], theirs = [];
  for (const rule of found.violations.filter((one) => ["serious", "critical"].includes(one.impact)))
    for (const node of rule.nodes) {
      const shadow = Array.isArray(node.target[0]);
      const element = document.querySelector(shadow ? node.target[0][0] : node.target[0]);
      const own = shadow || (element && element.closest("[data-testid=stHtml], [data-testid=stMarkdown]"));
      (own ? ours : theirs).push(`axe ${rule.id}: ${node.html.slice(0, 90)}`);
    }
  return [[...new Set(ours)], [...new Set(theirs.map((line) => line.split(":")[0]))]];
}
