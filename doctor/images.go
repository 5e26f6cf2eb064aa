package doctor

import (
	"archive/tar"
	"context"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"

	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/finding"
	"github.com/rockpool/rockpool/server"
)

// doctorImage is the name of an archive, and the environment that is made from it.
const doctorImage = "doctor-image"

// examineImages finds out whether runners can be made from container images, by
// one that has nothing in it: what there is comes from the server. cache is where
// the images of the server that others use are.
func examineImages(ctx context.Context, srv *server.Server, p *patient, cache string) finding.Finding {
	const name = "images"
	failed := func(err error) finding.Finding {
		return finding.Warning(name, "environments of the image host work all the same; images need a data directory (--data) on ext4, xfs, btrfs or tmpfs", "no runner could be made from a container image: %v", err)
	}
	if err := writeEmptyImage(filepath.Join(srv.Config().Images.Files, doctorImage)); err != nil {
		return failed(err)
	}
	image := "file:" + doctorImage
	env := engine.PutEnvironmentInput{ID: doctorImage, Image: &image, PoolSize: new(int)}
	if _, _, err := srv.Engine.PutEnvironment(ctx, env); err != nil {
		return failed(err)
	}
	if _, _, err := p.claim(ctx, doctorImage); err != nil {
		return failed(err)
	}
	return finding.Fine(name, "container images can be used; they are kept in %s, up to %.1f GB", cache, float64(srv.Config().Images.CacheBytes)/1e9)
}

// writeEmptyImage writes an image without layers as docker save does.
func writeEmptyImage(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w := tar.NewWriter(file)
	for _, part := range []struct{ name, text string }{
		{"manifest.json", `[{"Config": "config.json", "Layers": []}]`},
		{"config.json", fmt.Sprintf(`{"os": "linux", "architecture": %q, "rootfs": {"type": "layers", "diff_ids": []}}`, goruntime.GOARCH)},
	} {
		if err := w.WriteHeader(&tar.Header{Name: part.name, Mode: 0o644, Size: int64(len(part.text))}); err != nil {
			return err
		}
		if _, err := w.Write([]byte(part.text)); err != nil {
			return err
		}
	}
	return w.Close()
}
