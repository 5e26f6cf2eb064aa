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

// mayImport lists the packages of this module that each package may import; docs/architecture.md
// draws it. Every package has a row, and every entry is used. Tests may import more.
var mayImport = map[string][]string{
	".": {"agent/embedded", "cli", "cli/command", "client", "config", "doctor", "image", "local/image", "local/sandbox", "local/sandbox/daemon", "local/sandbox/helper", "local/sandbox/launch", "local/sandbox/roots", "local/uids", "runtime", "runtime/engine", "runtime/language", "runtime/similar", "server", "server/private"},

	"agent":                  {},
	"agent/bridge":           {},
	"agent/cmd":              {"agent", "agent/cmd/confinement", "agent/cmd/groups", "agent/cmd/host", "agent/cmd/namespaces", "agent/cmd/peer", "agent/cmd/process", "agent/cmd/task"},
	"agent/cmd/confinement":  {"agent/cmd/proc"},
	"agent/cmd/files":        {"agent", "agent/cmd/confinement", "runtime/paths"},
	"agent/cmd/groups":       {"agent/cmd/confinement", "agent/cmd/launch", "agent/cmd/proc", "agent/serve"},
	"agent/cmd/host":         {"agent", "agent/cmd/confinement", "agent/cmd/files", "agent/cmd/groups", "agent/cmd/kernelmemory", "agent/cmd/launch", "agent/cmd/memory", "agent/cmd/namespaces", "agent/cmd/process", "agent/serve"},
	"agent/cmd/kernelmemory": {"agent/cmd/proc"},
	"agent/cmd/launch":       {"agent/cmd/confinement", "agent/cmd/proc"},
	"agent/cmd/memory":       {},
	"agent/cmd/namespaces":   {"agent/cmd/proc"},
	"agent/cmd/peer":         {},
	"agent/cmd/proc":         {},
	"agent/cmd/process":      {"agent", "agent/cmd/confinement", "agent/cmd/groups", "agent/cmd/kernelmemory", "agent/cmd/launch", "agent/cmd/proc", "agent/cmd/streams", "agent/cmd/warm", "agent/serve", "runtime/backoff"},
	"agent/cmd/streams":      {"agent"},
	"agent/cmd/task":         {"agent/bridge", "agent/cmd/confinement", "agent/cmd/groups", "agent/cmd/host", "agent/cmd/memory", "agent/cmd/namespaces", "agent/cmd/peer"},
	"agent/cmd/warm":         {"agent", "agent/cmd/confinement", "agent/cmd/groups", "agent/cmd/launch"},
	"agent/embedded":         {},
	"agent/serve":            {"agent"},

	"runtime":             {},
	"runtime/activity":    {"runtime"},
	"runtime/attacks":     {"runtime"},
	"runtime/audit":       {"runtime", "runtime/backoff", "runtime/linefile", "runtime/share", "runtime/store", "runtime/timing"},
	"runtime/backoff":     {},
	"runtime/batch":       {"runtime", "runtime/backoff", "runtime/events", "runtime/latest"},
	"runtime/clustertest": {"agent", "agent/serve", "runtime", "runtime/past", "test/wait"},
	"runtime/access":      {"runtime"},
	"runtime/engine":      {"runtime", "runtime/activity", "runtime/attacks", "runtime/backoff", "runtime/batch", "runtime/events", "runtime/files", "runtime/lines", "runtime/logdir", "runtime/once", "runtime/output", "runtime/pool", "runtime/quota", "runtime/runnerfeed", "runtime/session", "runtime/share", "runtime/store", "runtime/ticket", "runtime/timing", "runtime/usage"},
	"runtime/events":      {"runtime", "runtime/output", "runtime/session"},
	"runtime/execution":   {"runtime"},
	"runtime/files":       {"agent", "runtime", "runtime/paths", "runtime/share"},
	"runtime/guard":       {"runtime", "runtime/access", "runtime/audit", "runtime/batch", "runtime/engine", "runtime/events", "runtime/files", "runtime/identity", "runtime/quota", "runtime/runnerfeed", "runtime/store", "runtime/ticket"},
	"runtime/identity":    {"runtime", "runtime/access", "runtime/timing"},
	"runtime/hints":       {"runtime"},
	"runtime/diagnosis":   {"runtime"},
	"runtime/judge":       {"runtime"},
	"runtime/language":    {"runtime"},
	"runtime/latest":      {},
	"runtime/linefile":    {},
	"runtime/lines":       {"runtime", "runtime/output", "runtime/turns"},
	"runtime/lockfile":    {},
	"runtime/logdir":      {"runtime", "runtime/output", "runtime/probe", "runtime/store", "runtime/timing"},
	"runtime/once":        {},
	"runtime/output":      {"runtime"},
	"runtime/past":        {"runtime"},
	"runtime/paths":       {},
	"runtime/pool":        {"runtime", "runtime/backoff", "runtime/latest", "runtime/timing", "runtime/turns"},
	"runtime/probe":       {},
	"runtime/problems":    {"runtime"},
	"runtime/quota":       {"runtime", "runtime/store", "runtime/timing"},
	"runtime/runnerfeed":  {"runtime"},
	"runtime/session":     {"agent", "runtime", "runtime/backoff", "runtime/diagnosis", "runtime/execution", "runtime/judge", "runtime/latest", "runtime/output", "runtime/share", "runtime/store", "runtime/timing"},
	"runtime/share":       {"runtime"},
	"runtime/similar":     {},
	"runtime/store":       {"runtime", "runtime/access", "runtime/backoff", "runtime/lockfile", "runtime/probe", "runtime/turns"},
	"runtime/tasks":       {"runtime/timing"},
	"runtime/ticket":      {"runtime", "runtime/pool", "runtime/share"},
	"runtime/timing":      {"runtime"},
	"runtime/turns":       {"runtime"},
	"runtime/usage":       {"agent", "runtime"},
	"runtime/versions":    {"runtime", "runtime/access", "runtime/engine", "runtime/events", "runtime/guard", "runtime/language"},

	"local":                   {"local/driver", "local/evidence", "local/host", "local/image", "local/network/access", "local/placing", "local/sandbox", "local/sandbox/helper", "local/sandbox/launch", "local/sandbox/spec", "local/scheduler", "local/taskrunner", "local/tiers", "runtime", "runtime/hints", "runtime/language", "runtime/past", "runtime/problems", "runtime/tasks", "runtime/turns"},
	"local/driver":            {"agent", "local/evidence", "local/host", "local/network/access", "local/process", "local/sandbox", "local/sandbox/cgroup", "local/sandbox/helper", "local/taskrunner", "runtime"},
	"local/evidence":          {"local/sandbox/cgroup", "runtime"},
	"local/host":              {"agent", "local/network", "local/sandbox/cgroup", "local/sandbox/helper", "local/sandbox/launch", "local/sandbox/oci", "local/sandbox/roots", "local/sandbox/spec", "local/taskrunner", "local/uids", "runtime", "runtime/language", "runtime/lockfile", "runtime/turns"},
	"local/image":             {"local/image/credentials", "local/image/fault", "local/image/tree", "runtime", "runtime/backoff"},
	"local/image/credentials": {"runtime"},
	"local/image/fault":       {"runtime"},
	"local/image/tree":        {"local/image/fault"},
	"local/network":           {},
	"local/network/access":    {"local/network", "local/network/ports", "local/network/resolver", "local/network/watch", "local/sandbox", "local/sandbox/helper", "local/sandbox/launch", "local/taskrunner", "runtime", "runtime/problems"},
	"local/network/fence":     {"local/network"},
	"local/network/ports":     {"local/network"},
	"local/network/resolver":  {"local/network"},
	"local/network/watch":     {},
	"local/placing":           {"local/sandbox", "local/scheduler", "local/taskrunner", "runtime", "runtime/tasks", "runtime/timing", "runtime/turns"},
	"local/process":           {},
	"local/sandbox":           {"local/network", "local/sandbox/helper", "local/sandbox/oci", "local/sandbox/spec", "runtime"},
	"local/sandbox/cgroup":    {"runtime/backoff"},
	"local/sandbox/cmd":       {"local/network", "local/network/fence", "local/sandbox/cgroup", "local/sandbox/daemon", "local/sandbox/helper", "local/sandbox/maker", "local/sandbox/oci", "local/sandbox/roots", "local/sandbox/spec"},
	"local/sandbox/daemon":    {"local/network", "local/sandbox/cgroup", "local/sandbox/helper", "local/sandbox/launch", "local/sandbox/oci", "local/sandbox/roots", "local/sandbox/spec", "local/uids"},
	"local/sandbox/helper":    {"local/network", "local/sandbox/cgroup", "local/sandbox/oci", "local/sandbox/spec"},
	"local/sandbox/launch":    {"local/sandbox/helper", "local/sandbox/spec"},
	"local/sandbox/maker":     {"local/sandbox/spec"},
	"local/sandbox/oci":       {"agent", "local/sandbox/roots"},
	"local/sandbox/roots":     {},
	"local/sandbox/spec":      {"local/sandbox/cgroup"},
	"local/scheduler":         {"runtime", "runtime/backoff", "runtime/timing", "runtime/turns"},
	"local/taskrunner":        {"runtime", "runtime/backoff", "runtime/tasks"},
	"local/thread":            {},
	"local/tiers":             {"local/host", "local/sandbox", "local/sandbox/oci", "runtime"},
	"local/uids":              {},

	"nomad":             {"agent", "agent/bridge", "nomad/bridges", "nomad/connection", "nomad/delivery", "nomad/environment", "nomad/group", "nomad/job", "nomad/listing", "nomad/lock", "nomad/outcome", "nomad/record", "runtime", "runtime/backoff", "runtime/finding", "runtime/hints", "runtime/past", "runtime/problems", "runtime/tasks", "runtime/turns"},
	"nomad/bridges":     {"agent", "agent/bridge", "nomad/connection", "nomad/group", "nomad/job", "runtime"},
	"nomad/connection":  {"nomad/group", "runtime", "runtime/backoff", "runtime/timing", "runtime/turns"},
	"nomad/delivery":    {"agent/embedded", "nomad/connection", "runtime/turns"},
	"nomad/environment": {"nomad/connection", "nomad/job", "runtime", "runtime/problems", "runtime/turns"},
	"nomad/group":       {},
	"nomad/job":         {"agent/embedded", "runtime"},
	"nomad/listing":     {"nomad/connection", "nomad/group", "nomad/job", "runtime", "runtime/backoff"},
	"nomad/lock":        {"nomad/connection", "runtime", "runtime/backoff", "runtime/problems"},
	"nomad/outcome":     {"agent", "nomad/connection", "nomad/job", "runtime"},
	"nomad/record":      {"nomad/connection", "nomad/job", "runtime"},

	"compat":      {"graph/transport/arriving", "graph/transport/peers", "runtime", "runtime/access", "runtime/guard", "runtime/identity", "runtime/language", "runtime/share", "runtime/timing", "runtime/versions"},
	"compat/jobe": {"compat", "graph/transport/peers", "graph/transport/response", "runtime", "runtime/access", "runtime/batch", "runtime/engine", "runtime/events", "runtime/files", "runtime/language", "runtime/turns"},
	"compat/mcp":  {"compat", "graph/transport/peers", "runtime", "runtime/access", "runtime/engine", "runtime/events", "runtime/files", "runtime/language", "runtime/share"},

	"graph":                    {"compat", "graph/download", "graph/feed", "graph/gate", "graph/generated", "graph/model", "graph/pagination", "graph/presenter", "graph/transport", "graph/transport/framing", "graph/transport/peers", "graph/transport/response", "graph/transport/socket", "runtime", "runtime/access", "runtime/activity", "runtime/audit", "runtime/batch", "runtime/engine", "runtime/events", "runtime/files", "runtime/guard", "runtime/identity", "runtime/language", "runtime/runnerfeed", "runtime/share", "runtime/ticket", "runtime/versions"},
	"graph/download":           {"runtime", "runtime/access", "runtime/engine", "runtime/identity", "runtime/timing"},
	"compat/poseidon":          {"compat", "graph/transport/peers", "graph/transport/socket", "runtime", "runtime/access", "runtime/engine", "runtime/events", "runtime/files", "runtime/share"},
	"graph/feed":               {"runtime", "runtime/events"},
	"graph/gate":               {"graph/presenter", "graph/transport", "graph/transport/peers", "runtime", "runtime/access", "runtime/identity"},
	"graph/generated":          {"graph/model", "graph/pagination", "graph/transport", "runtime", "runtime/access", "runtime/attacks", "runtime/audit", "runtime/engine", "runtime/events", "runtime/files", "runtime/language", "runtime/runnerfeed", "runtime/ticket"},
	"graph/model":              {"graph/pagination", "runtime", "runtime/audit", "runtime/batch", "runtime/engine", "runtime/events"},
	"graph/pagination":         {"runtime"},
	"graph/presenter":          {"graph/transport", "graph/transport/response", "runtime"},
	"graph/transport":          {"graph/transport/arriving", "graph/transport/peers", "graph/transport/response", "graph/transport/socket", "runtime", "runtime/access"},
	"graph/transport/arriving": {"graph/transport/peers", "runtime"},
	"graph/transport/framing":  {"runtime"},
	"graph/transport/peers":    {"graph/transport/framing", "graph/transport/response", "graph/transport/socket", "runtime"},
	"graph/transport/response": {"runtime"},
	"graph/transport/socket":   {},

	"web": {},

	"config": {"agent/embedded", "config/quantity", "graph/transport", "local/network", "local/sandbox/oci", "local/uids", "runtime", "runtime/access", "runtime/language", "runtime/similar"},

	"config/quantity": {},

	"server":           {"agent/embedded", "client", "config", "compat", "compat/jobe", "compat/mcp", "compat/poseidon", "graph", "graph/download", "graph/transport", "graph/transport/arriving", "graph/transport/peers", "local", "local/host", "local/image", "local/image/tree", "local/network", "local/network/access", "local/sandbox", "local/sandbox/oci", "local/scheduler", "local/tiers", "nomad", "nomad/connection", "nomad/job", "runtime", "runtime/access", "runtime/attacks", "runtime/audit", "runtime/engine", "runtime/finding", "runtime/identity", "runtime/language", "runtime/pool", "runtime/quota", "runtime/share", "runtime/store", "runtime/timing", "server/accesslog", "server/metrics", "server/peering", "server/secure", "server/signin", "web"},
	"server/accesslog": {"runtime/linefile"},
	"server/metrics":   {"compat", "graph/transport/peers", "local", "local/scheduler", "nomad", "nomad/outcome", "runtime", "runtime/engine", "runtime/tasks", "runtime/timing"},
	"server/peering":   {"graph/transport/socket"},
	"server/private":   {"config", "local", "local/sandbox/cgroup", "local/uids", "runtime/backoff", "runtime/lockfile", "server"},
	"server/secure":    {"graph/transport/socket"},
	"server/signin":    {"runtime", "runtime/access", "runtime/timing"},

	"client": {"runtime"},

	"cli":           {"cli/admin", "cli/bridge", "cli/cases", "cli/command", "cli/copying", "cli/execution", "cli/output", "cli/terminal", "client", "config/quantity", "runtime", "runtime/paths"},
	"cli/admin":     {"cli/command", "cli/output", "client", "runtime"},
	"cli/bridge":    {},
	"cli/cases":     {"cli/command", "cli/output", "client", "runtime"},
	"cli/command":   {"cli/output", "client", "config/quantity", "runtime", "runtime/similar"},
	"cli/copying":   {"cli/command", "cli/output", "client", "runtime/paths"},
	"cli/execution": {"cli/command", "cli/output", "cli/terminal", "client", "runtime", "runtime/language"},
	"cli/output":    {},
	"cli/terminal":  {"client"},

	"image": {"agent", "cli/command", "cli/output", "config", "runtime", "runtime/language", "runtime/similar"},

	"doctor":               {"cli/command", "client", "config", "doctor/attack", "doctor/attack/world", "local/host", "local/network", "local/sandbox", "local/sandbox/cgroup", "local/sandbox/spec", "local/thread", "local/tiers", "local/uids", "runtime", "runtime/attacks", "runtime/engine", "runtime/finding", "runtime/store", "server", "server/private", "server/secure"},
	"doctor/attack":        {"client", "doctor/attack/world", "runtime"},
	"doctor/attack/prober": {},
	"doctor/attack/world":  {},
	"runtime/finding":      {},

	"test/artifacts":             {"test/repository"},
	"test/bench":                 {"cli/command", "config", "server", "test/bench/bare", "test/bench/bed", "test/bench/floors", "test/bench/judge", "test/bench/measure", "test/bench/rows", "test/bench/rows/executions", "test/bench/rows/onnomad", "test/bench/rows/runners", "test/bench/rows/servers", "test/bench/rows/sustained", "test/commandline"},
	"test/bench/bare":            {},
	"test/bench/bed":             {"client", "config", "runtime", "runtime/engine", "runtime/store", "server", "test/bench/bare", "test/bench/floors", "test/bench/judge", "test/bench/measure", "test/bench/socket", "test/bench/usage", "test/commandline"},
	"test/bench/floors":          {"test/bench/socket", "test/commandline"},
	"test/bench/judge":           {},
	"test/bench/measure":         {"test/bench/usage"},
	"test/bench/rows":            {"client", "test/bench/bed", "test/bench/measure", "test/bench/socket"},
	"test/bench/rows/executions": {"client", "runtime", "test/bench/bed", "test/bench/measure", "test/bench/rows", "test/bench/socket"},
	"test/bench/rows/onnomad":    {"test/bench/bare", "test/bench/bed", "test/bench/measure", "test/bench/rows"},
	"test/bench/rows/runners":    {"client", "local/scheduler", "runtime", "test/bench/bed", "test/bench/floors", "test/bench/measure", "test/bench/rows", "test/bench/socket", "test/bench/usage"},
	"test/bench/rows/servers":    {"client", "runtime", "test/bench/bed", "test/bench/measure", "test/bench/rows"},
	"test/bench/rows/sustained":  {"client", "runtime", "test/bench/bed", "test/bench/measure", "test/bench/rows"},
	"test/bench/socket":          {},
	"test/bench/usage":           {},
	"test/chaos":                 {"cli/command", "client", "config", "test/chaos/clients", "test/chaos/house", "test/chaos/ledger", "test/chaos/moment", "test/chaos/schedule", "test/commandline"},
	"test/chaos/clients":         {"client", "runtime", "test/chaos/house", "test/chaos/ledger", "test/chaos/moment"},
	"test/chaos/house":           {"client", "runtime", "test/chaos/ledger", "test/chaos/moment", "test/commandline", "test/postgrestest"},
	"test/chaos/ledger":          {"test/chaos/moment"},
	"test/chaos/moment":          {},
	"test/chaos/schedule":        {"test/chaos/moment"},
	"test/commandline":           {"cli", "cli/command", "config/quantity"},
	"test/descriptors":           {},
	"test/dextest":               {"test/need", "test/port", "test/repository"},
	"test/disk":                  {"test/need"},
	"test/e2e/api":               {},
	"test/e2e/bed":               {"cli", "cli/command", "client", "config", "runtime", "server", "test/artifacts", "test/need", "test/repository", "test/sandboxtest", "test/wait"},
	"test/e2e/codeocean":         {"test/need", "test/wait"},
	"test/e2e/commands":          {},
	"test/e2e/isolation":         {},
	"test/e2e/jobe":              {},
	"test/e2e/languages":         {"runtime", "runtime/language", "test/e2e/bed"},
	"test/e2e/life":              {},
	"test/e2e/nomad":             {},
	"test/e2e/pages":             {},
	"test/e2e/scraping":          {"client", "config", "runtime", "test/e2e/bed", "test/need", "test/wait"},
	"test/clock":                 {},
	"test/executable":            {},
	"test/imagetest":             {"runtime"},
	"test/need":                  {"runtime/lockfile", "test/artifacts"},
	"test/nginxtest":             {"test/need", "test/port", "test/wait"},
	"test/networktest":           {"local/thread", "test/need", "test/wait"},
	"test/nomadtest":             {"test/need", "test/repository"},
	"test/nomadtest/cmd":         {"test/nomadtest"},
	"test/pages":                 {},
	"test/port":                  {},
	"test/pipes":                 {},
	"test/postgrestest":          {"test/need"},
	"test/reference":             {},
	"test/repository":            {},
	"test/sandboxtest":           {"test/need", "test/repository"},
	"test/sandboxtest/without":   {"test/sandboxtest"},
	"test/tlstest":               {},
	"test/wait":                  {},
	"test/words":                 {},
}

// onlyIn lists which packages may import a heavy dependency.
var onlyIn = map[string][]string{
	"github.com/hashicorp/nomad":             {"nomad/...", "test/bench/bare", "test/nomadtest/..."},
	"github.com/opencontainers/runc":         {"local/sandbox/..."},
	"github.com/opencontainers/cgroups":      {"local/sandbox/..."},
	"github.com/opencontainers/runtime-spec": {"local/sandbox/..."},
	"github.com/google/nftables":             {"local/network/fence", "test/networktest"},
	"github.com/vishvananda":                 {"local/network/fence", "test/networktest"},
	"golang.org/x/net/dns":                   {"local/network/resolver"},
	"github.com/hashicorp/go-memdb":          {"local/scheduler"},
	"github.com/google/go-containerregistry": {"image", "local/image/...", "test/imagetest"},
	"github.com/klauspost/compress":          {"local/image"},
	"modernc.org/sqlite":                     {"runtime/store"},
	"github.com/jackc/pgx":                   {"runtime/store"},
	"github.com/pressly/goose":               {"runtime/store"},
	"database/sql":                           {"runtime/store"},
	"github.com/99designs/gqlgen":            {"graph/..."},
	"github.com/vektah/gqlparser":            {"graph/...", "test/reference"},
	"github.com/Khan/genqlient":              {"client"},
	"github.com/go-jose/go-jose":             {"runtime/identity"},
	"github.com/rs/cors":                     {"graph"},
	"github.com/alecthomas/kong":             {".", "cli/...", "config/...", "test/..."},
	"github.com/goccy/go-yaml":               {"cli/...", "config", "doctor/attack", "runtime/language", "test/e2e/languages", "test/e2e/scraping"},
	"github.com/yuin/goldmark":               {"test/pages"},
	"golang.org/x/term":                      {"cli/..."},
	"github.com/prometheus":                  {"server/metrics", "test/e2e/scraping"},
	"github.com/coreos/go-oidc":              {"server/signin"},
	"golang.org/x/oauth2":                    {"server/signin"},
	"github.com/modelcontextprotocol/go-sdk": {"compat/mcp"},
	"github.com/google/jsonschema-go":        {"compat/mcp"},
}

// A listed package is an entry of `go list` for a package of this module.
type listed struct {
	ImportPath string
	Imports    []string
}

// list returns all packages of the module.
func list(t *testing.T) (all []listed) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports", "./...")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var pkg listed
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, pkg)
	}
}

func TestImportsFollowTheArchitecture(t *testing.T) {
	dead := map[string][]string{}
	for pkg, allowed := range mayImport {
		dead[pkg] = slices.Clone(allowed)
	}
	for _, pkg := range list(t) {
		name := relative(pkg.ImportPath)
		if _, has := mayImport[name]; !has {
			t.Errorf("%s has no row in mayImport", name)
		}
		for _, imported := range pkg.Imports {
			if why := forbidden(name, imported); why != "" {
				t.Errorf("%s imports %s: %s", pkg.ImportPath, imported, why)
			}
			dead[name] = slices.DeleteFunc(dead[name], func(allowed string) bool { return allowed == relative(imported) })
		}
		if len(dead[name]) > 0 {
			t.Errorf("mayImport allows %s to import %q, which it doesn't", name, dead[name])
		}
		delete(dead, name)
	}
	for name := range dead {
		t.Errorf("mayImport has a row for %s, but there is no such package", name)
	}
}

// TestHeavyDependenciesAreImportedOnlyWhereAllowed, and every row of onlyIn is used.
func TestHeavyDependenciesAreImportedOnlyWhereAllowed(t *testing.T) {
	all := list(t)
	for dependency, rooms := range onlyIn {
		for _, room := range rooms {
			if !slices.ContainsFunc(all, func(pkg listed) bool {
				imports := func(imported string) bool { return within(imported, dependency) }
				return matches([]string{room}, relative(pkg.ImportPath)) && slices.ContainsFunc(pkg.Imports, imports)
			}) {
				t.Errorf("nothing in %s imports %s", room, dependency)
			}
		}
	}
}

// relative returns a package's import path below the module.
func relative(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

// forbidden says why a package may not import another; "" if it may.
func forbidden(pkg, imported string) string {
	for dependency, rooms := range onlyIn {
		if within(imported, dependency) && !matches(rooms, pkg) {
			return "it belongs in " + strings.Join(rooms, ", ") + " only"
		}
	}
	if imported != module && !strings.HasPrefix(imported, module+"/") {
		return ""
	}
	switch name := relative(imported); {
	case within(name, "test") && !forTests(pkg):
		return "product code never imports what only tests use"
	case !slices.Contains(mayImport[pkg], name):
		return "mayImport doesn't list it"
	}
	return ""
}

// forTests reports whether only tests, the bench and chaos use a package.
func forTests(pkg string) bool {
	return within(pkg, "test") || strings.HasSuffix(pkg, "test") || strings.Contains(pkg, "test/")
}

func within(path, parent string) bool {
	return path == parent || strings.HasPrefix(path, parent+"/")
}

func matches(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
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
		{"local/sandbox/helper", module + "/local/uids", false},
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
		{"runtime/engine", module + "/test/wait", false},
		{"test/sandboxtest", module + "/test/need", true},
		{"server/metrics", "github.com/prometheus/client_golang/prometheus", true},
		{"runtime/engine", "github.com/prometheus/client_golang/prometheus", false},
		{"local", module + "/server/metrics", false},
		{".", module + "/server", true},
		{".", module + "/local", false},
	} {
		if why := forbidden(test.pkg, test.imported); (why == "") != test.fine {
			t.Errorf("%s imports %s: %q", test.pkg, test.imported, why)
		}
	}
}
