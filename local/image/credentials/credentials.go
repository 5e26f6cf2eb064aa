// Package credentials finds what registries' own tools left on this machine to
// log in with: the files of docker login and podman login, and the helpers that
// they name. It reads them anew each time, and keeps nothing. None of its errors
// has a secret.
package credentials

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/rockpool/rockpool/runtime"
)

// A Keychain looks in the files that a process's environment leads to. It is an
// authn.ContextKeychain, and its methods may be called at once.
type Keychain struct {
	Getenv func(string) string
}

// Resolve implements authn.Keychain.
func (k Keychain) Resolve(target authn.Resource) (authn.Authenticator, error) {
	return k.ResolveContext(context.Background(), target)
}

// ResolveContext returns the credentials for a registry, or for a repository of
// it, of the first file that has some; authn.Anonymous where none has. A file, or
// a helper, that doesn't work is a CLUSTER_UNAVAILABLE: to go on without would ask
// for what isn't shown to strangers, and blame the registry.
func (k Keychain) ResolveContext(ctx context.Context, target authn.Resource) (authn.Authenticator, error) {
	for _, path := range k.files() {
		f, err := read(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var found authn.AuthConfig
		if err == nil {
			found, err = f.find(ctx, target)
		}
		if err != nil {
			return nil, runtime.Wrap(runtime.CodeClusterUnavailable, fmt.Errorf("%s: %w", path, err), "this server's own credentials for registries can't be read: its log says why")
		}
		if found != (authn.AuthConfig{}) {
			return authn.FromConfig(found), nil
		}
	}
	return authn.Anonymous, nil
}

// files returns where credentials may be, what was named for them first.
func (k Keychain) files() []string {
	var all []string
	if path := k.Getenv("REGISTRY_AUTH_FILE"); path != "" {
		all = append(all, path)
	}
	home := k.Getenv("HOME")
	if dir := k.Getenv("DOCKER_CONFIG"); dir != "" {
		all = append(all, filepath.Join(dir, "config.json"))
	} else if home != "" {
		all = append(all, filepath.Join(home, ".docker", "config.json"))
	}
	if dir := k.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		all = append(all, filepath.Join(dir, "containers", "auth.json"))
	} else if path := fmt.Sprintf("/run/containers/%d/auth.json", os.Getuid()); mayBeThere(path) {
		all = append(all, path)
	}
	if dir := k.Getenv("XDG_CONFIG_HOME"); dir != "" {
		all = append(all, filepath.Join(dir, "containers", "auth.json"))
	} else if home != "" {
		all = append(all, filepath.Join(home, ".config", "containers", "auth.json"))
	}
	return all
}

// mayBeThere reports whether a file that nobody named is there for this user:
// where root uses podman, its directory is root's alone.
func mayBeThere(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrPermission)
}

// A file is what docker's config.json and podman's auth.json have in common.
type file struct {
	Auths map[string]struct {
		Auth          string `json:"auth"` // base64 of the name, a colon, and the password
		Username      string `json:"username"`
		Password      string `json:"password"`
		IdentityToken string `json:"identitytoken"`
		RegistryToken string `json:"registrytoken"`
	} `json:"auths"`
	Helpers map[string]string `json:"credHelpers"` // by registry
	Store   string            `json:"credsStore"`  // the helper for the others
}

func read(path string) (*file, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f file
	if json.Unmarshal(text, &f) != nil { // whose error would quote it
		return nil, errors.New("it isn't the JSON of docker login, or of podman login")
	}
	return &f, nil
}

// find returns the credentials that a file leads to; none are the zero value.
// A helper knows better than the file: its secrets may be of an hour.
func (f *file) find(ctx context.Context, target authn.Resource) (authn.AuthConfig, error) {
	hosts := aliases(target.RegistryStr())
	helper, host := f.Store, hosts[0]
	for _, h := range hosts {
		if named := f.Helpers[h]; named != "" {
			helper, host = named, h
			break
		}
	}
	if helper != "" {
		if found, err := ask(ctx, helper, host); err != nil || found != (authn.AuthConfig{}) {
			return found, err
		}
	}
	key, ok := f.key(target)
	if !ok {
		return authn.AuthConfig{}, nil
	}
	entry := f.Auths[key]
	found := authn.AuthConfig{Username: entry.Username, Password: entry.Password, IdentityToken: entry.IdentityToken, RegistryToken: entry.RegistryToken}
	if entry.Auth == "" {
		return found, nil
	}
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(entry.Auth, "=")) // some pad it, some don't
	user, password, ok := strings.Cut(string(text), ":")
	if err != nil || !ok {
		return authn.AuthConfig{}, fmt.Errorf("what it has for %q can't be read: log in there again", key)
	}
	found.Username, found.Password = user, strings.TrimRight(password, "\x00")
	return found, nil
}

// key returns the key in Auths that says most of a target.
func (f *file) key(target authn.Resource) (string, bool) {
	registry := target.RegistryStr()
	_, path, _ := strings.Cut(target.String(), "/")
	for {
		for _, host := range aliases(registry) {
			want := strings.TrimSuffix(host+"/"+path, "/")
			for _, key := range slices.Sorted(maps.Keys(f.Auths)) {
				if normal(key) == normal(want) {
					return key, true
				}
			}
		}
		if path == "" {
			return "", false
		}
		path = path[:max(0, strings.LastIndexByte(path, '/'))] // podman logs in to parts of a registry, too
	}
}

// aliases returns the names under which tools store a registry, the one that
// helpers know first.
func aliases(registry string) []string {
	if registry == name.DefaultRegistry {
		return []string{authn.DefaultAuthKey, registry, strings.TrimPrefix(registry, "index.")}
	}
	return []string{registry}
}

// normal returns a key without what some tools put around it.
func normal(key string) string {
	if _, rest, ok := strings.Cut(key, "://"); ok {
		key = rest
	}
	key = strings.TrimSuffix(key, "/")
	return strings.TrimSuffix(strings.TrimSuffix(key, "/v1"), "/v2")
}
