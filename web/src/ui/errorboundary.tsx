import { Component, type ReactNode } from "react";
import { Notice, Page } from "./parts";

/** ErrorBoundary is an error boundary. It replaces a page that failed to render. */
export class ErrorBoundary extends Component<{ children: ReactNode }, { error?: Error }> {
  override state: { error?: Error } = {};

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override render() {
    if (!this.state.error) return this.props.children;
    return (
      <Page title="Page error">
        <Notice
          kind="bad"
          action={
            <button type="button" className="button small" onClick={() => window.location.reload()}>
              Reload
            </button>
          }
        >
          The page couldn't be shown: {this.state.error.message}. Reload it; this helps if the server was updated.
        </Notice>
      </Page>
    );
  }
}
