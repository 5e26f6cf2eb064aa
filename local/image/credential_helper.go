package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
)

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
		var exit *exec.ExitError
		if errors.As(err, &exit) && strings.TrimSpace(string(said)) == notFound {
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
