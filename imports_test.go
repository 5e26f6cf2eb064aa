package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/rockpool/rockpool"

// mayImport says which of our packages a package may import: docs/architecture.md
// draws it. A name ending in "/..." stands for all below it too. What isn't a
// key may import none of ours. Tests may import more.
var mayImport = map[string][]string{
	".":                    {"..."},
	"runtime":              {},
	"runtime/engine":       {"runtime", "runtime/pool", "runtime/execution", "runtime/output", "runtime/store", "runtime/probe", "runtime/timing", "agent"},
	"runtime/clustertest":  {"runtime", "runtime/past", "agent", "agent/serve", "test/wait"},
	"runtime/pool":         {"runtime", "runtime/turns"},
	"runtime/execution":    {"runtime"},
	"runtime/output":       {"runtime"},
	"runtime/store":        {"runtime", "runtime/lockfile", "runtime/probe"},
	"runtime/timing":       {},
	"runtime/turns":        {},
	"runtime/probe":        {},
	"runtime/hints":        {"runtime"},
	"runtime/past":         {"runtime"},
	"agent":                {},
	"client":               {"runtime"},
	"config":               {"runtime", "agent/embedded", "graph/transport", "local/network", "local/sandbox/oci"},
	"server":               {"config", "server/metrics", "runtime", "runtime/engine", "runtime/pool", "runtime/store", "runtime/lockfile", "agent/embedded", "client", "graph/...", "local/...", "local", "nomad", "web"},
	"doctor":               {"config", "server", "doctor/attack/...", "cli", "client", "runtime", "runtime/engine", "local", "local/network", "local/sandbox/...", "local/thread", "local/uids"},
	"doctor/attack":        {"client", "runtime", "doctor/attack/world"},
	"doctor/attack/world":  {},
	"doctor/attack/prober": {},
	"cli":                  {"client", "runtime"},
	"agent/...":            {"agent/..."},
	"local":                {"runtime", "runtime/hints", "runtime/past", "runtime/timing", "agent/...", "local/..."},
	"local/scheduler":      {"runtime", "runtime/timing", "runtime/turns"},
	"local/image":          {"runtime", "local/image/credentials"},
	"local/network":        {},
	"local/network/ports":  {},
	"local/...":            {"runtime", "runtime/timing", "agent/...", "local/..."},
	"nomad/bare":           {},
	"test/wait":            {},
	"test/e2e/...":         {"..."},
	"test/bench":           {"cli", "client", "config", "server", "runtime", "runtime/engine", "runtime/store", "local/scheduler", "nomad/bare"},
	"test/chaos":           {"cli", "client", "config", "runtime"},
	"test/repository":      {},
	"test/executable":      {},
	"test/artifacts":       {"test/repository"},
	"test/need":            {"runtime/lockfile", "test/artifacts"},
	"test/disk":            {"test/need"},

	// These make things for tests. Nothing that is built into a program imports them.
	"local/sandbox/sandboxtest": {"test/need", "test/repository"},
	"local/network/networktest": {"local/thread", "test/need", "test/wait"},
	"nomad/nomadtest":           {"test/need", "test/repository"},
	"nomad":                     {"runtime", "runtime/hints", "runtime/past", "agent/...", "nomad/..."},
	"nomad/...":                 {"runtime", "agent/...", "nomad/..."},
	"graph":                     {"runtime", "runtime/engine", "graph/..."},
	"graph/...":                 {"runtime", "runtime/engine", "graph/..."},
	"server/metrics":            {"runtime", "runtime/engine", "runtime/timing", "graph/transport", "local", "local/scheduler", "local/taskrunner"},
	"web":                       {},
}

// onlyIn says where a heavy dependency may be imported.
var onlyIn = map[string][]string{
	"github.com/hashicorp/nomad":             {"nomad/..."},
	"github.com/opencontainers/runc":         {"local/sandbox/..."},
	"github.com/opencontainers/cgroups":      {"local/sandbox/..."},
	"github.com/opencontainers/runtime-spec": {"local/sandbox/...", "local"},
	"github.com/elastic/go-seccomp-bpf":      {"agent/..."},
	"github.com/google/nftables":             {"local/network/fence", "local/network/networktest"},
	"github.com/vishvananda":                 {"local/network/fence", "local/network/networktest"},
	"golang.org/x/net/dns":                   {"local/network/resolver"},
	"github.com/hashicorp/go-memdb":          {"local/scheduler"},
	"github.com/google/go-containerregistry": {"local/image/..."},
	"github.com/klauspost/compress":          {"local/image"},
	"modernc.org/sqlite":                     {"runtime/store"},
	"github.com/pressly/goose":               {"runtime/store"},
	"database/sql":                           {"runtime/store"},
	"github.com/99designs/gqlgen":            {"graph/...", "."},
	"github.com/vektah/gqlparser":            {"graph/...", "."},
	"github.com/rs/cors":                     {"graph"},
	"github.com/alecthomas/kong":             {".", "cli", "config", "test/..."},
	"github.com/goccy/go-yaml":               {"cli", "config"},
	"golang.org/x/term":                      {"cli"},
	"github.com/prometheus":                  {"server/metrics", "test/e2e/..."},
}

func TestPackagesImportOnlyWhatTheyMay(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports", "./...")
	list.Env = append(list.Environ(), "CGO_ENABLED=1")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	packages := 0
	for {
		var pkg struct {
			ImportPath string
			Imports    []string
		}
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages++
		for _, imported := range pkg.Imports {
			if why := forbidden(relative(pkg.ImportPath), imported); why != "" {
				t.Errorf("%s imports %s: %s", pkg.ImportPath, imported, why)
			}
		}
	}
	if packages < 10 {
		t.Errorf("only %d packages were looked at", packages)
	}
}

// relative returns the import path of one of our packages below the module.
func relative(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

// forbidden returns why a package may not import another; "" if it may.
func forbidden(pkg, imported string) string {
	for dependency, rooms := range onlyIn {
		if within(imported, dependency) && !matches(rooms, pkg) {
			return "it belongs in " + strings.Join(rooms, ", ") + " only"
		}
	}
	if imported != module && !strings.HasPrefix(imported, module+"/") {
		return ""
	}
	allowed, known := mayImport[pkg]
	for parent := pkg; !known && parent != ""; {
		parent = parent[:max(0, strings.LastIndexByte(parent, '/'))]
		allowed, known = mayImport[parent+"/..."]
	}
	if !matches(allowed, relative(imported)) {
		return "design rule; see mayImport"
	}
	return ""
}

func within(path, parent string) bool {
	return path == parent || strings.HasPrefix(path, parent+"/")
}

func matches(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if pattern == "..." {
			return true
		}
		parent, all := strings.CutSuffix(pattern, "/...")
		return pkg == parent || all && within(pkg, parent)
	})
}

func TestImportRulesCanFail(t *testing.T) {
	for _, test := range []struct {
		pkg, imported string
		fine          bool
	}{
		{"graph", module + "/runtime/engine", true},
		{"graph/model", module + "/runtime", true},
		{"graph", module + "/local", false},
		{"graph", module + "/runtime/store", false},
		{"runtime", module + "/agent", false},
		{"runtime/pool", module + "/runtime/engine", false},
		{"local/sandbox/helper", module + "/local/uids", true},
		{"local", module + "/runtime/store", false},
		{"cli", module + "/runtime/engine", false},
		{"graph", "github.com/alecthomas/kong", false},
		{"local", "github.com/opencontainers/runc/libcontainer", false},
		{"local/sandbox/cmd", "github.com/opencontainers/runc/libcontainer", true},
		{"local", "github.com/hashicorp/go-memdb", false},
		{"local/scheduler", "github.com/hashicorp/go-memdb", true},
		{"local/scheduler", module + "/local/sandbox", false},
		{"local", "github.com/google/go-containerregistry/pkg/v1/remote", false},
		{"local/image", "github.com/google/go-containerregistry/pkg/v1/remote", true},
		{"local/image", module + "/local", false},
		{"runtime/engine", "database/sql", false},
		{"agent", module + "/runtime", false},
		{"web", module + "/graph", false},
		{"newcomer", module + "/runtime", false},
		{"server/metrics", "github.com/prometheus/client_golang/prometheus", true},
		{"runtime/engine", "github.com/prometheus/client_golang/prometheus", false},
		{"local", module + "/server/metrics", false},
		{".", module + "/local", true},
	} {
		if why := forbidden(test.pkg, test.imported); (why == "") != test.fine {
			t.Errorf("%s imports %s: %q", test.pkg, test.imported, why)
		}
	}
}
