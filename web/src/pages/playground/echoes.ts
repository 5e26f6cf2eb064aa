/**
 * Tells what an editor reported itself from what others set. A page under load can show a text that
 * the editor reported a while ago: to set that would take back what was typed since.
 */
export class Echoes {
  private reported: string[] = [];

  /** The editor reports this text. */
  report(text: string) {
    this.reported.push(text);
  }

  /** Whether a text that the editor is given is one that it reported. Older ones won't come any more. */
  has(text: string): boolean {
    const at = this.reported.lastIndexOf(text);
    this.reported = this.reported.slice(at + 1);
    return at >= 0;
  }

  /** Others have set another text. */
  clear() {
    this.reported = [];
  }
}
