import { readResponse, ServerError, textOf, unreachable } from "./request";
import { graphql } from "./graphql";
import { credentials } from "./session";

const UploadMutation = graphql(`
  mutation UploadFile($runnerId: ID!, $path: String!, $file: Upload!) {
    uploadFile(runnerId: $runnerId, path: $path, file: $file) {
      file {
        size
      }
    }
  }
`);

/** upload uploads a file byte for byte, by a multipart request. `progress` receives shares from 0 to 1. */
export function upload(runnerId: string, path: string, file: Blob, progress: (share: number) => void): Promise<unknown> {
  const form = new FormData();
  form.set("operations", JSON.stringify({ query: textOf(UploadMutation), variables: { runnerId, path, file: null } }));
  form.set("map", JSON.stringify({ 0: ["variables.file"] }));
  form.set("0", file);
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", "/graphql");
    request.setRequestHeader("GraphQL-Require-Preflight", "1");
    request.setRequestHeader("Accept", "application/json");
    for (const [name, value] of Object.entries(credentials())) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => event.lengthComputable && progress(event.loaded / event.total);
    request.onload = () => readResponse(() => Promise.resolve(new Response(request.responseText, { status: request.status }))).then(resolve, reject);
    request.onerror = () => reject(unreachable());
    request.onabort = () => reject(new ServerError("The upload was cancelled."));
    request.send(form);
  });
}
