package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"

	"github.com/rockpool/rockpool/doctor/attack"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/server"
)

// doctorImage is the name of an image archive and of the environment that uses it.
const doctorImage = "doctor-image"

// examineImages tests whether runners can be created from container images. It uses an image without
// layers, so it needs no registry. cache is the image directory of the real server.
func examineImages(ctx context.Context, srv *server.Server, p *subject, cache string) health.Finding {
	const name = "images"
	failed := func(err error) health.Finding {
		return health.Warning(name, "environments with the image host still work; container images need a data directory (--data) on ext4, xfs, btrfs or tmpfs", "no runner could be created from a container image: %v", err)
	}
	archive := attack.Saved("manifest.json", `[{"Config": "config.json", "Layers": []}]`,
		"config.json", fmt.Sprintf(`{"os": "linux", "architecture": %q, "rootfs": {"type": "layers", "diff_ids": []}}`, goruntime.GOARCH))
	if err := os.WriteFile(filepath.Join(srv.Config().Images.Files, doctorImage), archive, 0o644); err != nil {
		return failed(err)
	}
	image := "file:" + doctorImage
	env := request.Environment{ID: doctorImage, Image: &image, PoolSize: new(int)}
	if _, _, err := srv.Engine.Environments.Put(access.With(ctx, access.Server()), env); err != nil {
		return failed(err)
	}
	if _, _, err := p.claim(ctx, doctorImage); err != nil {
		return failed(err)
	}
	return health.Fine(name, "container images work; they are cached in %s, up to %.1f GB", cache, float64(srv.Config().Images.CacheBytes)/1e9)
}
