package nomad

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/e2e/languages"
	"github.com/rockpool/rockpool/test/imagetest"
	"github.com/rockpool/rockpool/test/nomadtest"
)

// TestE2ENomadLanguages runs the core of some languages in containers, from an image that rockpool
// image build made.
func TestE2ENomadLanguages(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{Drivers: []string{"docker"}, Volumes: true})
	settings := newNomadConfig(t, n)
	settings.Nomad.Driver, settings.Nomad.NodeImages, settings.Nomad.Workspace = "docker", false, "volume"
	b, _ := bed.ServeHere(t, settings)
	t.Setenv("ROCKPOOL_TOKEN_FILE", settings.TokenFile)
	all, err := languages.Read()
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(p languages.Program) bool {
		return !p.Core || !slices.Contains([]string{"Assembler", "AWK", "C", "Python", "Shell"}, p.Language)
	})
	if len(all) < 40 {
		t.Errorf("%d programs", len(all))
	}
	s := languages.New(t, b, languages.Platform{Name: "nomad", Image: builtImage(t), Isolation: "CLUSTER"})
	s.Run(t, all, func(t testing.TB, tool string) { t.Errorf("the image has no %s", tool) })
}

// builtImage builds an image, pushes it to a registry, and returns its reference.
func builtImage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "image", "build", "core", "--config", os.DevNull, "--file", filepath.Join(dir, "core.tar"),
		"--languages", "python3,c,shell,bash,awk", "--packages", "git,patch,file,jq,make,zsh"); code != 0 {
		t.Fatalf("exit %d\n%s", code, errs)
	}
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", dir, "-x", "-f", filepath.Join(dir, "core.tar")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	return imagetest.NewRegistry(t, nil).PushIndex(index, "core:1")
}
