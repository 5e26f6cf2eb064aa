/** Words is a command line, split as a shell does. */
export interface Words {
  words: string[];
  /** Whether a shell would only split the text and start the program that it names. */
  plain: boolean;
  /** Whether the text has a placeholder for arguments, such as `"$@"` or `$1`. */
  takesArguments: boolean;
  /** Whether no argument can follow: the text ends with an operator, the end of a block, or a comment. */
  closed: boolean;
}

// The builtins of a shell that aren't programs too. echo, for example, is also a program.
const builtins = new Set(
  ". : alias bg break cd command continue eval exec exit export fc fg getopts hash jobs local read readonly return set shift source times trap type ulimit umask unalias unset wait".split(" "),
);
const placeholder = /\$(?:[@*#1-9]|\{[#!]?[@*1-9]|\{#\})/;
const block = /[;&\n)}]\s*(?:\}|(?:done|fi|esac)(?:\s+(?:\}|done|fi|esac))*)$/;

/**
 * split splits a text as a POSIX shell does: at blanks, with quotes and backslashes. It expands nothing. It returns
 * undefined if a quote has no end.
 */
export function split(text: string): Words | undefined {
  const words: string[] = [];
  let plain = true;
  let takesArguments = false;
  let comment = false;
  let operator = -1; // where the last one is
  const open: boolean[] = []; // open parentheses: whether each belongs to a substitution, which is part of a word
  let word: string | undefined;
  for (let at = 0; at < text.length; at++) {
    const char = text[at]!;
    if (/\s/.test(char)) {
      if (char === "\n") plain = comment = false; // it ends a command
      if (word !== undefined) words.push(word);
      word = undefined;
      continue;
    }
    if (/[|&;<>()$`*?[\]#~{}!]/.test(char) || (char === "=" && words.length === 0)) plain = false;
    if (char === "(") open.push(/[$<>]/.test(text[at - 1] ?? ""));
    if (/[|&;<>(]/.test(char) || (char === ")" && !open.pop())) operator = at;
    if (char === "#" && word === undefined) comment = true;
    if (char === "$" && text.slice(at).search(placeholder) === 0) takesArguments = true;
    if (char === "'" || char === '"') {
      const end = endOf(text, at);
      if (end < 0) return undefined;
      const quoted = text.slice(at + 1, end);
      if (char === '"' && /[$`]/.test(quoted)) plain = false;
      if (char === '"' && placeholder.test(quoted.replace(/\\./g, ""))) takesArguments = true;
      word = (word ?? "") + (char === '"' ? quoted.replace(/\\(["\\$`])/g, "$1") : quoted);
      at = end;
    } else {
      word = (word ?? "") + (char === "\\" && at + 1 < text.length ? text[++at]! : char);
    }
  }
  if (word !== undefined) words.push(word);
  const closed = comment || (operator >= 0 && operator === text.trimEnd().length - 1) || block.test(text.trimEnd());
  return { words, plain: plain && words.length > 0 && !builtins.has(words[0]!), takesArguments, closed };
}

/** endOf returns the index of a quote's end, or -1. */
function endOf(text: string, from: number): number {
  if (text[from] === "'") return text.indexOf("'", from + 1);
  for (let at = from + 1; at < text.length; at++) {
    if (text[at] === "\\") at++;
    else if (text[at] === '"') return at;
  }
  return -1;
}
