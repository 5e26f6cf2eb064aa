export interface Words {
  words: string[];
  /** Whether a shell would do no more with the text than split it. */
  plain: boolean;
}

/**
 * Splits a text as a POSIX shell does: at blanks, with quotes and backslashes. It expands
 * nothing. It returns undefined if a quote has no end.
 */
export function split(text: string): Words | undefined {
  const words: string[] = [];
  let plain = true;
  let word: string | undefined;
  for (let at = 0; at < text.length; at++) {
    const char = text[at]!;
    if (/\s/.test(char)) {
      if (char === "\n") plain = false; // it ends a command
      if (word !== undefined) words.push(word);
      word = undefined;
      continue;
    }
    if (/[|&;<>()$`*?[\]#~{}!]/.test(char) || (char === "=" && words.length === 0)) plain = false;
    if (char === "'" || char === '"') {
      const end = endOf(text, at);
      if (end < 0) return undefined;
      const quoted = text.slice(at + 1, end);
      if (char === '"' && /[$`]/.test(quoted)) plain = false;
      word = (word ?? "") + (char === '"' ? quoted.replace(/\\(["\\$`])/g, "$1") : quoted);
      at = end;
    } else {
      word = (word ?? "") + (char === "\\" && at + 1 < text.length ? text[++at]! : char);
    }
  }
  if (word !== undefined) words.push(word);
  return { words, plain: plain && words.length > 0 };
}

/** Where the quote that begins there ends; negative: nowhere. */
function endOf(text: string, from: number): number {
  if (text[from] === "'") return text.indexOf("'", from + 1);
  for (let at = from + 1; at < text.length; at++) {
    if (text[at] === "\\") at++;
    else if (text[at] === '"') return at;
  }
  return -1;
}

/** A word for a POSIX shell, whatever is in it. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
