/**
 * Echoes distinguishes texts that an editor reported from texts that others set. Under load a page can pass back a text
 * that the editor reported a while ago. Setting it would undo the typing since then.
 */
export class Echoes {
  private reported: string[] = [];

  /** Records a text that the editor reported. */
  report(text: string) {
    this.reported.push(text);
  }

  /** Returns whether the editor reported the text, and forgets older reports, which can't arrive later. */
  has(text: string): boolean {
    const at = this.reported.lastIndexOf(text);
    this.reported = this.reported.slice(at + 1);
    return at >= 0;
  }

  /** Forgets all reports, after others set a text. */
  clear() {
    this.reported = [];
  }
}
