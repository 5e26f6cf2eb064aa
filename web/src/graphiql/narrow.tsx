import schema from "../../../schema.graphqls?url";

/** Narrow replaces GraphiQL in a narrow window. */
export function Narrow() {
  return (
    <main id="main" className="narrow">
      <h1>GraphiQL needs a wider window</h1>
      <p>Its editors need at least 768 pixels. Turn the device, or open this page on a larger screen.</p>
      <p>You can read the API’s schema, which describes every field, or run a program without GraphiQL.</p>
      <div className="row">
        <a className="button primary" href={schema}>
          Read the schema
        </a>
        <a className="button" href="/playground">
          Run a program
        </a>
        <a className="button" href="/">
          Go to the dashboard
        </a>
      </div>
    </main>
  );
}
