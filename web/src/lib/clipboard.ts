/**
 * copyText copies a text, also without TLS, where browsers have no clipboard API. It throws if the browser refuses.
 * A text that isn't ready yet is passed to the clipboard as a promise, because strict browsers reject a write long
 * after the click.
 */
export async function copyText(text: string | Promise<string>) {
  if (typeof text !== "string" && "ClipboardItem" in window && navigator.clipboard) {
    const blob = text.then((text) => new Blob([text], { type: "text/plain" }));
    try {
      return await navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]);
    } catch (error) {
      await text; // the error of the text explains more than the clipboard's
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
  if (!copied) throw new Error("The browser doesn't allow copying here. Select the text and copy it with the keyboard.");
}
