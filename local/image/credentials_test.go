package image

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/rockpool/rockpool/runtime"
)

// A home is a user's home directory, with an environment.
type home struct {
	t   *testing.T
	dir string
	env map[string]string
}

func newHome(t *testing.T) *home {
	dir := t.TempDir()
	return &home{t, dir, map[string]string{"HOME": dir, "XDG_RUNTIME_DIR": filepath.Join(dir, "run")}}
}

func (h *home) write(path, text string) string {
	h.t.Helper()
	path = filepath.Join(h.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		h.t.Fatal(err)
	}
	return path
}

// find returns the credentials for a repository: "user:password", "token …" or "".
func (h *home) find(repository string) (string, error) {
	h.t.Helper()
	target, err := name.NewRepository(repository)
	if err != nil {
		h.t.Fatal(err)
	}
	found, err := loginKeychain{func(name string) string { return h.env[name] }}.ResolveContext(h.t.Context(), target)
	if err != nil || found == authn.Anonymous {
		return "", err
	}
	config, err := found.Authorization()
	switch {
	case err != nil:
		return "", err
	case config.IdentityToken != "":
		return "token " + config.IdentityToken, nil
	}
	return config.Username + ":" + config.Password, nil
}

func (h *home) expect(repository, want string) {
	h.t.Helper()
	if got, err := h.find(repository); err != nil || got != want {
		h.t.Errorf("for %s: %q (%v), not %q", repository, got, err, want)
	}
}

// login returns a file with one user's credentials for each key.
func login(user string, keys ...string) string {
	var entries []string
	for _, key := range keys {
		entries = append(entries, fmt.Sprintf("%q:{\"auth\":%q}", key, base64.StdEncoding.EncodeToString([]byte(user+":secret"))))
	}
	return `{"auths":{` + strings.Join(entries, ",") + `}}`
}

const host = "registry.example.org:5000"

func TestFilesAreSearchedInOrder(t *testing.T) {
	h := newHome(t)
	h.expect(host+"/x", "")
	h.write(".config/containers/auth.json", login("settings", host))
	h.expect(host+"/x", "settings:secret")
	h.write("run/containers/auth.json", login("podman", host))
	h.expect(host+"/x", "podman:secret")
	h.write(".docker/config.json", login("docker", host))
	h.expect(host+"/x", "docker:secret")
	h.env["DOCKER_CONFIG"] = filepath.Dir(h.write("elsewhere/config.json", login("elsewhere", host)))
	h.expect(host+"/x", "elsewhere:secret")
	h.env["REGISTRY_AUTH_FILE"] = h.write("named.json", login("named", "other.example.org"))
	h.expect(host+"/x", "elsewhere:secret") // the first file has none for this registry
	h.expect("other.example.org/x", "named:secret")
	h.expect("nobody.example.org/x", "")
}

func TestKeysOfARegistry(t *testing.T) {
	h := newHome(t)
	for key, repository := range map[string]string{
		"https://" + host + "/v1/": host + "/x", "http://" + host + "/v2/": host + "/x", host + "/": host + "/x",
		host + "/a":              host + "/a/b",
		authn.DefaultAuthKey:     "library/x",
		name.DefaultRegistry:     "library/x",
		authn.DefaultAuthKey[8:]: "a/x",
	} {
		h.write(".docker/config.json", login("a", key))
		h.expect(repository, "a:secret")
		h.expect("example.net/x", "")
	}
	h.write(".docker/config.json", strings.TrimSuffix(login("all", host), "}}")+","+strings.TrimPrefix(login("part", host+"/a"), `{"auths":{`))
	h.expect(host+"/a/b", "part:secret")
	h.expect(host+"/ab", "all:secret")
	h.write(".docker/config.json", `{"auths":{"`+host+`":{"username":"u","password":"p:q"}}}`)
	h.expect(host+"/x", "u:p:q")
	h.write(".docker/config.json", `{"auths":{"`+host+`":{"identitytoken":"t"}}}`)
	h.expect(host+"/x", "token t")
	h.write(".docker/config.json", `{"auths":{"`+host+`":{"auth":"`+base64.RawStdEncoding.EncodeToString([]byte("u:pw"))+`"}}}`)
	h.expect(host+"/x", "u:pw")
}

func TestHelpers(t *testing.T) {
	h := newHome(t)
	t.Setenv("PATH", h.dir+":"+os.Getenv("PATH"))
	t.Setenv("ROCKPOOL_TOKEN", "ours")
	h.write("docker-credential-one", `#!/bin/sh
read -r registry || true
[ "$1 $registry" = "get `+host+`" ] || { echo 'credentials not found in native keychain'; exit 1; }
echo "{\"ServerURL\":\"$registry\",\"Username\":\"helped\",\"Secret\":\"s${ROCKPOOL_TOKEN}\"}"`)
	h.write("docker-credential-token", "#!/bin/sh\necho '{\"Username\":\"<token>\",\"Secret\":\"t\"}'")
	h.write("docker-credential-broken", "#!/bin/sh\necho '{\"Secret\":\"hunter2\"'; exit 3")
	h.write("docker-credential-junk", "#!/bin/sh\necho hunter2")
	h.write(".docker/config.json", `{"credHelpers":{"`+host+`":"one"},"credsStore":"token"}`)
	h.expect(host+"/x", "helped:s")
	h.expect("example.net/x", "token t")
	h.write(".docker/config.json", `{"credsStore":"one",`+login("filed", "example.net")[1:])
	h.expect("example.net/x", "filed:secret") // the helper has no credentials for it
	h.expect("example.com/x", "")
	for _, broken := range []string{"broken", "junk", "missing", "../docker-credential-one"} {
		h.write(".docker/config.json", `{"credsStore":"`+broken+`"}`)
		if _, err := h.find(host + "/x"); runtime.CodeOf(err) != runtime.CodeClusterUnavailable || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", broken, err)
		}
	}
}

// An unreadable file is an error: otherwise the registry would be blamed.
func TestBrokenFilesAreErrors(t *testing.T) {
	h := newHome(t)
	for _, text := range []string{`{"auths":{"` + host + `":{"auth":"hunter2"}}}`, `{"auths":"hunter2"}`, "hunter2"} {
		h.write(".docker/config.json", text)
		_, err := h.find(host + "/x")
		if runtime.CodeOf(err) != runtime.CodeClusterUnavailable || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "config.json") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
