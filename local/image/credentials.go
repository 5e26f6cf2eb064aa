package image

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/rockpool/rockpool/runtime"
)

// A loginKeychain finds the credentials that docker login and podman login stored on this machine. It
// calls the credential helpers that their files name. It reads the files each time, and keeps nothing.
// Its errors contain no secrets. It is an authn.ContextKeychain, and safe for concurrent use.
type loginKeychain struct {
	Getenv func(string) string
}

func (k loginKeychain) Resolve(target authn.Resource) (authn.Authenticator, error) {
	return k.ResolveContext(context.Background(), target)
}

// ResolveContext returns the credentials for a registry or a repository, from the first file that has
// some; else authn.Anonymous. It returns CLUSTER_UNAVAILABLE if a file or a helper is broken: without
// credentials, the registry would deny access and be blamed.
func (k loginKeychain) ResolveContext(ctx context.Context, target authn.Resource) (authn.Authenticator, error) {
	for _, path := range k.files() {
		f, err := readLoginFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var found authn.AuthConfig
		if err == nil {
			found, err = f.find(ctx, target)
		}
		if err != nil {
			return nil, runtime.Wrap(runtime.CodeClusterUnavailable, fmt.Errorf("%s: %w", path, err), "this server's credentials for registries can't be read; the server's log says why")
		}
		if found != (authn.AuthConfig{}) {
			return authn.FromConfig(found), nil
		}
	}
	return authn.Anonymous, nil
}

// files returns the files that may have credentials, explicitly configured ones first.
func (k loginKeychain) files() (all []string) {
	add := func(dir string, names ...string) {
		if dir != "" {
			all = append(all, filepath.Join(append([]string{dir}, names...)...))
		}
	}
	inHome := func(name string) string {
		home := k.Getenv("HOME")
		if home == "" {
			return ""
		}
		return filepath.Join(home, name)
	}
	add(k.Getenv("REGISTRY_AUTH_FILE"))
	add(cmp.Or(k.Getenv("DOCKER_CONFIG"), inHome(".docker")), "config.json")
	if dir := k.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		add(dir, "containers", "auth.json")
	} else if path := fmt.Sprintf("/run/containers/%d/auth.json", os.Getuid()); mayExist(path) {
		add(path)
	}
	add(cmp.Or(k.Getenv("XDG_CONFIG_HOME"), inHome(".config")), "containers", "auth.json")
	return all
}

// mayExist is false if root uses podman: then others can't access the default file's directory.
func mayExist(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrPermission)
}

// A loginFile is the common part of docker's config.json and podman's auth.json.
type loginFile struct {
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

func readLoginFile(path string) (*loginFile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f loginFile
	if json.Unmarshal(text, &f) != nil { // the error would quote the secret
		return nil, errors.New("it isn't a file of docker login or podman login")
	}
	return &f, nil
}

// find returns a file's credentials, if any. A helper comes first: its secrets may be short-lived.
func (f *loginFile) find(ctx context.Context, target authn.Resource) (authn.AuthConfig, error) {
	hosts := aliases(target.RegistryStr())
	helper, host := f.Store, hosts[0]
	for _, h := range hosts {
		if named := f.Helpers[h]; named != "" {
			helper, host = named, h
			break
		}
	}
	if helper != "" {
		if found, err := queryHelper(ctx, helper, host); err != nil || found != (authn.AuthConfig{}) {
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
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(entry.Auth, "=")) // tools differ in padding
	user, password, ok := strings.Cut(string(text), ":")
	if err != nil || !ok {
		return authn.AuthConfig{}, fmt.Errorf("its entry for %q can't be read: log in there again", key)
	}
	found.Username, found.Password = user, strings.TrimRight(password, "\x00")
	return found, nil
}

// key returns the most specific key in Auths for a target.
func (f *loginFile) key(target authn.Resource) (string, bool) {
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
		path = path[:max(0, strings.LastIndexByte(path, '/'))] // podman can log in to parts of a registry
	}
}

// aliases returns the names under which tools store a registry, the one that helpers use first.
func aliases(registry string) []string {
	if registry == name.DefaultRegistry {
		return []string{authn.DefaultAuthKey, registry, strings.TrimPrefix(registry, "index.")}
	}
	return []string{registry}
}

// normal returns a key without the scheme and version that some tools add.
func normal(key string) string {
	if _, rest, ok := strings.Cut(key, "://"); ok {
		key = rest
	}
	key = strings.TrimSuffix(key, "/")
	return strings.TrimSuffix(strings.TrimSuffix(key, "/v1"), "/v2")
}

// helperWithin bounds how long a credential helper may take: some query a cloud.
const helperWithin = 20 * time.Second

// Parts of the credential helpers' protocol.
const (
	helperPrefix = "docker-credential-"
	notFound     = "credentials not found in native keychain"
	tokenUser    = "<token>" // with this user name the secret is an identity token
)

// queryHelper returns a credential helper's credentials for a registry, or the zero value. The helper
// doesn't get the variables of this server's settings: tokens can be among them.
func queryHelper(ctx context.Context, helper, registry string) (authn.AuthConfig, error) {
	if strings.ContainsRune(helper, '/') {
		return authn.AuthConfig{}, fmt.Errorf("the credential helper %q must be a name, not a path", helper)
	}
	ctx, cancel := context.WithTimeout(ctx, helperWithin)
	defer cancel()
	command := exec.CommandContext(ctx, helperPrefix+helper, "get")
	command.Stdin = strings.NewReader(registry)
	command.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "ROCKPOOL_") })
	command.WaitDelay = time.Second
	said, err := command.Output()
	if err != nil {
		if _, ended := errors.AsType[*exec.ExitError](err); ended && strings.TrimSpace(string(said)) == notFound {
			return authn.AuthConfig{}, nil
		}
		// The output may be the secret, so the error doesn't contain it.
		return authn.AuthConfig{}, fmt.Errorf("%s%s get for %s: %w", helperPrefix, helper, registry, err)
	}
	var found struct{ Username, Secret string }
	if json.Unmarshal(said, &found) != nil {
		return authn.AuthConfig{}, fmt.Errorf("%s%s get for %s returned an invalid answer", helperPrefix, helper, registry)
	}
	if found.Username == tokenUser {
		return authn.AuthConfig{IdentityToken: found.Secret}, nil
	}
	return authn.AuthConfig{Username: found.Username, Password: found.Secret}, nil
}
