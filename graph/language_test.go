package graph

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/wait"
)

type listedLanguages struct {
	Languages []struct {
		ID, Name, FileName     string
		Build, Run, Extensions []string
		EnvironmentIDs         []string
		EnvironmentID, Version *string
		Limits                 struct{ MemoryMiB, TimeLimit int }
	}
}

const listLanguages = `{ languages { id name fileName build run extensions environmentIds environmentId limits { memoryMiB timeLimit } version } }`

func TestLanguagesAreThoseOfTheRecipes(t *testing.T) {
	b := newBed(t)
	var out listedLanguages
	if code, _ := b.send(listLanguages, nil, &out); code != nil {
		t.Fatal(code)
	}
	all := language.Default().All()
	if len(out.Languages) != len(all) {
		t.Fatalf("%d languages, want %d", len(out.Languages), len(all))
	}
	for i, got := range out.Languages {
		want := all[i]
		if got.ID != want.ID || got.FileName != want.FileName || !slices.Equal(got.Build, want.Build) || !slices.Equal(got.Run, want.Run) ||
			len(got.EnvironmentIDs) != len(want.Environments) || got.Limits.MemoryMiB != want.Limits.MemoryMiB || got.EnvironmentID != nil || got.Version != nil {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func TestLanguageHasTheVersionOfItsPreferredEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "languages.yaml")
	err := os.WriteFile(file, []byte(`languages:
  - {id: mine, fileName: a.mine, run: [mine], version: [echo, "Mine 1.2"], versionPattern: 'Mine (.*)', environments: [absent, second, third], limits: {seconds: 7}}
  - {id: unversioned, fileName: a.u, run: [u], environments: [second]}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	var options bedOptions
	if options.Languages, err = language.Load(file); err != nil {
		t.Fatal(err)
	}
	fake := clustertest.NewFake()
	b := newBedWith(t, fake, fake, options)
	for _, id := range []string{"third", "second"} {
		b.environment(id, 1)
	}
	wait.For(t, "the version is known", func() bool {
		var out listedLanguages
		if code, _ := b.send(listLanguages, nil, &out); code != nil {
			t.Fatal(code)
		}
		own, last := out.Languages[len(out.Languages)-2], out.Languages[len(out.Languages)-1]
		if own.EnvironmentID == nil || *own.EnvironmentID != "second" || own.Limits.TimeLimit != 7 || last.EnvironmentID == nil || last.Version != nil {
			t.Fatalf("%+v, %+v", own, last)
		}
		return own.Version != nil && *own.Version == "1.2"
	})
}

// A listeningAPI keeps the Services that the server gives it.
type listeningAPI struct{ services *compat.Services }

func (listeningAPI) Name() string { return "listening" }
func (listeningAPI) Path() string { return "/listening/" }

func (d listeningAPI) Headers() []string { return []string{"X-Key"} }

func (d listeningAPI) Register(services compat.Services, _ *compat.Routes) { *d.services = services }

func TestDisabledAPIsSayHowToEnableThem(t *testing.T) {
	fake := clustertest.NewFake()
	b := newBedWith(t, fake, fake, bedOptions{site: site{DisabledCompat: []compat.API{listeningAPI{}}}})
	answer, err := http.Get(b.url + "/listening/x")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusNotFound || !strings.Contains(string(text), "--compat") {
		t.Errorf("%s: %s", answer.Status, text)
	}
}

func TestCompatibleAPIsHaveTheSameLanguages(t *testing.T) {
	var host compat.Services
	own := language.Of(language.Recipe{ID: "own", Version: []string{"echo", "1.2"}, VersionPattern: "(.*)", Environments: []runtime.EnvironmentID{"e"}})
	options := bedOptions{site: site{Languages: own, Compat: []compat.API{listeningAPI{&host}}, Counts: new(compat.Counts)}}
	fake := clustertest.NewFake()
	b := newBedWith(t, fake, fake, options)
	b.environment("e", 1)
	if host.Languages != own {
		t.Error("a compatible API has other languages")
	}
	env, _, _ := b.engine.Environments.Get(access.With(t.Context(), access.Server()), "e")
	if found, known := host.Versions.Versions(access.With(t.Context(), access.Anonymous()), env); !known || found["own"] != "1.2" {
		t.Errorf("%v %v", found, known)
	}
}
