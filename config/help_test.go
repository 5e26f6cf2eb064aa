package config

import (
	"errors"
	"regexp"
	"slices"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/rockpool/rockpool/config/quantity"
)

// documentedRange has the bounds in a setting's help.
var documentedRange = regexp.MustCompile(` Allowed: (\d\S*) to (\d[^\s;]*?)[.;]? `)

// Help names the bounds that Check has. The cluster on Nomad checks some of its own.
func TestHelpNamesTheBounds(t *testing.T) {
	elsewhere := []string{"nomad-memory-reserve", "nomad-restarts", "nomad-reschedules", "nomad-direct-timeout"}
	tested := 0
	for _, flag := range flags(t) {
		bounds := documentedRange.FindStringSubmatch(flag.Help)
		if bounds == nil || slices.Contains(elsewhere, flag.Name) {
			continue
		}
		tested++
		for i, step := range []int64{-1, 1} {
			if err := checkWith(t, flag.Name, bounds[i+1], 0); err != nil {
				t.Errorf("--%s=%s is documented, and refused: %v", flag.Name, bounds[i+1], err)
			}
			var wrong *Error
			if err := checkWith(t, flag.Name, bounds[i+1], step); !errors.As(err, &wrong) || wrong.Flag != flag.Name {
				if step > 0 || !slices.Contains([]string{"1", "1s", "1MiB"}, bounds[i+1]) { // 0 may have another meaning
					t.Errorf("beyond %s, --%s isn't refused: %v", bounds[i+1], flag.Name, err)
				}
			}
		}
	}
	if tested < 20 {
		t.Errorf("only %d settings have bounds", tested)
	}
}

// checkWith checks settings in which one is a text, and step away from it.
func checkWith(t *testing.T, name, text string, step int64) error {
	t.Helper()
	c := validOIDC(t)
	parser, err := kong.New(&c, quantity.Flags())
	if err != nil {
		t.Fatal(err)
	}
	arguments := []string{"--" + name + "=" + text, "--cluster=nomad", "--nomad-stream-agent", "--oidc-issuer=" + c.OIDC.Issuer,
		"--oidc-client-id=x", "--oidc-redirect-url=" + c.OIDC.RedirectURL, "--oidc-roles=a=ADMIN", "--data=" + t.TempDir()}
	if _, err := parser.Parse(arguments); err != nil {
		return err
	}
	for _, flag := range parser.Model.Flags {
		if flag.Name == name && flag.Target.CanInt() {
			flag.Target.SetInt(flag.Target.Int() + step)
		} else if flag.Name == name {
			flag.Target.SetFloat(flag.Target.Float() + float64(step)/1000)
		}
	}
	return c.Check()
}
