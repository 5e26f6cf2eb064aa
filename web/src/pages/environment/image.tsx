import { bytes, plural } from "../../lib/format";
import type { Pool } from "../../lib/pools";
import { Notice } from "../../ui/parts";

/** ImageState shows the progress of pulling an environment's image; nothing for environments without one. */
export function ImageState({ image, served }: { image: Pool["image"]; served: boolean }) {
  if (!image) return null;
  const instead = served ? " Meanwhile the pool uses the previous revision." : "";
  if (image.state === "FAILED") return <Notice kind="bad">{`The image is unavailable: ${image.reason}.${instead}`}</Notice>;
  if (image.state === "READY") {
    return (
      <p className="soft small">
        Image ready: <code>{image.digest}</code>, {plural(image.layers, "layer")}.
      </p>
    );
  }
  const layers = image.layers > 0 ? `: ${image.layersDone} of ${plural(image.layers, "layer")}, ${bytes(image.bytesDone)} of ${bytes(image.bytes)}` : "";
  return (
    <div className="stack tight" role="status">
      <span className="small">{`The image is being pulled${layers}.${instead}`}</span>
      <progress aria-label="The image's bytes" value={image.bytesDone} max={Math.max(image.bytes, 1)} />
    </div>
  );
}
