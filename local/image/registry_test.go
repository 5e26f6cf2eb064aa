package image

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/rockpool/rockpool/runtime"
)

// The sizes in a registry's answers are checked before they are used.
func TestRegistryAnswersAreBounded(t *testing.T) {
	const blob = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	manifest := func(config, layer int64) string {
		return fmt.Sprintf(`{"schemaVersion":2,"config":{"size":%d,"digest":%q},"layers":[{"size":%d,"digest":%q}]}`, config, blob, layer, blob)
	}
	for name, c := range map[string]struct {
		kind     types.MediaType
		manifest string
		says     string
	}{
		"a large manifest":                {types.OCIManifestSchema1, `{"layers":[` + strings.Repeat("{},", 2<<20) + `{}]}`, "larger"},
		"a broken manifest":               {types.OCIManifestSchema1, `{`, "manifest"},
		"a configuration of unknown size": {types.OCIManifestSchema1, manifest(-1, 1), "configuration"},
		"a large configuration":           {types.OCIManifestSchema1, manifest(1<<40, 1), "configuration"},
		"redirects in a circle":           {"", "/v2/x/manifests/latest", "redirects"},
		"an image for another platform": {types.OCIImageIndex, `{"manifests":[{"size":1,"digest":"` + blob + `","platform":{"os":"linux","architecture":"s390x"}}]}`,
			"linux/" + goruntime.GOARCH},
		"an outdated format": {types.DockerManifestSchema1, `{}`, "outdated"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.Contains(r.URL.Path, "/manifests/") && c.kind == "":
					http.Redirect(w, r, c.manifest, http.StatusTemporaryRedirect)
				case strings.Contains(r.URL.Path, "/manifests/"):
					w.Header().Set("Content-Type", string(c.kind))
					_, _ = w.Write([]byte(c.manifest))
				case strings.Contains(r.URL.Path, "/blobs/"):
					for range 64 { // the rest of an endless answer
						_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
					}
				}
			}))
			defer server.Close()
			b := newBox(t, t.TempDir(), nil)
			_, err := b.Resolve(t.Context(), strings.TrimPrefix(server.URL, "http://")+"/x")
			if runtime.CodeOf(err) != runtime.CodeInvalidInput || !strings.Contains(runtime.MessageOf(err), c.says) {
				t.Errorf("got %v, want INVALID_INPUT with %q", err, c.says)
			}
		})
	}
	config := fmt.Sprintf(`{"os":"linux","architecture":%q,"rootfs":{"diff_ids":[%q]}}`, goruntime.GOARCH, blob)
	digest, _, err := v1.SHA256(strings.NewReader(config))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{-1, 1 << 60} {
		raw := strings.Replace(manifest(int64(len(config)), n), blob, digest.String(), 1)
		_, err := newSource([]byte(raw), []byte(config), localPlatform(), func(v1.Descriptor) func() (io.ReadCloser, error) { return nil })
		if !strings.Contains(runtime.MessageOf(err), "layer 1") {
			t.Errorf("a layer of %d bytes: got %v, want an error that names layer 1", n, err)
		}
	}
}
