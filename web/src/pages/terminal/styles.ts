// xterm writes its styles into style elements and style attributes. The page's policy forbids both, because the page
// shows the output of programs. The policy allows the same styles if a script sets them one by one.

/**
 * create replaces document.createElement. Only style and span elements differ from the browser's.
 */
function create(this: Document, name: string, options?: ElementCreationOptions): HTMLElement {
  if (name === "style") return adopting();
  const element = Document.prototype.createElement.call(document, name, options) as HTMLElement;
  if (name === "span") element.setAttribute = setAttribute;
  return element;
}

/** adopting returns a replacement for a style element. It puts the text into a style sheet that the page adopts. */
function adopting(): HTMLElement {
  const element = Document.prototype.createElement.call(document, "template") as HTMLElement;
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  let text = "";
  Object.defineProperty(element, "textContent", {
    get: () => text,
    set: (value: string) => {
      text = value;
      sheet.replaceSync(value);
    },
  });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== sheet);
    Element.prototype.remove.call(element);
  };
  return element;
}

/** setAttribute sets a style through the element's style object, which the policy allows. */
function setAttribute(this: HTMLElement, name: string, value: string) {
  if (name === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
}

/** users counts the callers of withoutInlineStyles that haven't ended. */
let users = 0;

/**
 * withoutInlineStyles replaces document.createElement until the returned function is called. xterm creates spans
 * whenever it draws.
 */
export function withoutInlineStyles(): () => void {
  if (users++ === 0) document.createElement = create as typeof document.createElement;
  return () => {
    if (--users === 0) delete (document as { createElement?: unknown }).createElement;
  };
}
