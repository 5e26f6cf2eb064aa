package credentials

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

// helperWithin bounds how long a helper may take: some ask a cloud.
const helperWithin = 20 * time.Second

// Parts of the helpers' protocol.
const (
	helperPrefix = "docker-credential-"
	notFound     = "credentials not found in native keychain"
	tokenUser    = "<token>" // whose secret is an identity token
)

// ask asks a helper for the credentials of a registry; none are the zero value.
// It isn't told what this server's own settings are: tokens can be among them.
func ask(ctx context.Context, helper, registry string) (authn.AuthConfig, error) {
	if strings.ContainsRune(helper, '/') {
		return authn.AuthConfig{}, fmt.Errorf("the credential helper %q isn't a name", helper)
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
		return authn.AuthConfig{}, fmt.Errorf("%s%s get for %s: %w", helperPrefix, helper, registry, err) // without what it said: that may be the secret
	}
	var found struct{ Username, Secret string }
	if json.Unmarshal(said, &found) != nil {
		return authn.AuthConfig{}, fmt.Errorf("%s%s get for %s doesn't answer as the protocol demands", helperPrefix, helper, registry)
	}
	if found.Username == tokenUser {
		return authn.AuthConfig{IdentityToken: found.Secret}, nil
	}
	return authn.AuthConfig{Username: found.Username, Password: found.Secret}, nil
}
