import schema from "../../../schema.graphqls?url";

/** Replaces GraphiQL in a narrow window: its editors need a wide one and a keyboard. */
export function Narrow() {
  return (
    <main id="main" className="narrow">
      <h1>GraphiQL needs a wider window</h1>
      <p>Its editors need at least 768 pixels. Turn the device, or open this page on a larger screen.</p>
      <p>Here you can read the API’s schema, which has a description of every field, or run a program without it.</p>
      <div className="row">
        <a className="button primary" href={schema}>
          Read the schema
        </a>
        <a className="button" href="/playground">
          Run a program
        </a>
        <a className="button" href="/">
          To the dashboard
        </a>
      </div>
    </main>
  );
}
