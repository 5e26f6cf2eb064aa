import { Component, type ReactNode } from "react";
import { Notice, Page } from "./parts";

/** Stands for a page that failed to show itself. */
export class Failed extends Component<{ children: ReactNode }, { error?: Error }> {
  override state: { error?: Error } = {};

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override render() {
    if (!this.state.error) return this.props.children;
    return (
      <Page title="This page failed">
        <Notice
          kind="bad"
          action={
            <button type="button" className="button small" onClick={() => window.location.reload()}>
              Load it again
            </button>
          }
        >
          {this.state.error.message}. If the server was updated meanwhile, loading it again helps.
        </Notice>
      </Page>
    );
  }
}
