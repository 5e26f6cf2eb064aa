package codeocean

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"
)

const token = "correct-horse-battery"

// serve starts a server with the door.
func serve(t *testing.T, change func(*config.Config)) bed.Bed {
	t.Helper()
	need.Sandboxes(t)
	settings := bed.Settings(bed.DataDir(t), bed.Cgroups)
	settings.TokenFile, settings.Doors = filepath.Join(t.TempDir(), "token"), []string{config.DoorPoseidon}
	if err := os.WriteFile(settings.TokenFile, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&settings)
	}
	b, _ := bed.ServeHere(t, settings)
	return b
}

func TestCodeOceanUsesItLikePoseidon(t *testing.T) {
	Platform{URL: serve(t, nil).Address, Token: token, Image: "host"}.Run(t)
}
