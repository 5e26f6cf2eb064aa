/**
 * Copies a text, also where there is no clipboard without TLS. It throws where the
 * browser refuses. A text that comes later is promised at once: strict browsers take
 * nothing that comes long after the click.
 */
export async function copyText(text: string | Promise<string>) {
  if (typeof text !== "string" && "ClipboardItem" in window && navigator.clipboard) {
    const blob = text.then((text) => new Blob([text], { type: "text/plain" }));
    try {
      return await navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]);
    } catch (error) {
      await text; // why there is none, where there is none
      throw error;
    }
  }
  const now = await text;
  if (navigator.clipboard) return navigator.clipboard.writeText(now);
  const area = document.createElement("textarea");
  area.value = now;
  area.style.position = "fixed";
  area.style.opacity = "0";
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) throw new Error("the browser has no clipboard here");
}
