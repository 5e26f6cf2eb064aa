package nomad

import (
	"testing"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/e2e/codeocean"
	"github.com/rockpool/rockpool/test/nomadtest"
)

// TestE2ENomadServesCodeOcean: CodeOcean's requests to the API poseidon work on Nomad too.
func TestE2ENomadServesCodeOcean(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{Drivers: []string{"exec"}, Volumes: true})
	settings := newNomadConfig(t, n)
	settings.Nomad.Driver, settings.Nomad.NoNetworkMode, settings.Compat = "exec", "host", []string{config.CompatPoseidon}
	b, _ := bed.ServeHere(t, settings)
	codeocean.Platform{URL: b.Address, Token: "correct-horse-battery", Image: runtime.DefaultImage}.Run(t, "whoami") // the tests' images don't have it
}
