package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	// tools are the vocabulary and what every layer may use.
	tools = "./runtime ./runtime/backoff ./runtime/disk ./runtime/health ./runtime/language ./runtime/paths ./runtime/similar ./runtime/syncs ./runtime/timing ./runtime/fairqueue"
	// heavy packages may be imported where a layer names them literally.
	heavy     = "./runtime/store " + databases + " github.com/hashicorp/nomad/... github.com/opencontainers/... github.com/google/nftables/... github.com/vishvananda/... github.com/google/go-containerregistry/... github.com/99designs/... github.com/vektah/... github.com/alecthomas/kong/... github.com/prometheus/... github.com/modelcontextprotocol/..."
	databases = "database/sql/... modernc.org/... github.com/jackc/... github.com/pressly/..."
	ofLocal   = "./local/... ./agent/... " + tools
	ofServer  = "./server/... ./client ./clients ./config ./compat/... ./graph/... ./web ./local/... ./nomad/... ./runtime/... ./agent/... ./runtime/store"
)

// layers say what a package may import; the first row that names it counts. Tests may import more.
var layers = []struct{ packages, imports string }{
	{tools, tools},
	{"./agent/... ./web", "./agent/... ./runtime/backoff ./runtime/paths"},
	{"./runtime/store/...", "./runtime/... " + databases},
	{"./runtime/...", "./runtime/... ./runtime/store ./agent"}, // the services, above any cluster
	{"./local/image/...", ofLocal + " github.com/google/go-containerregistry/..."},
	{"./local/network/firewall", ofLocal + " github.com/google/nftables/... github.com/vishvananda/..."},
	{"./local/sandbox/...", ofLocal + " github.com/opencontainers/..."},
	{"./local/...", ofLocal},
	{"./nomad/...", "./nomad/... ./agent/... github.com/hashicorp/nomad/... " + tools},
	{"./clients", "./runtime/access " + tools},
	{"./graph/...", "./graph/... ./clients ./compat/... ./runtime/... github.com/99designs/... github.com/vektah/..."},
	{"./compat/...", "./graph/... ./clients ./compat/... ./runtime/... github.com/modelcontextprotocol/..."}, // APIs of other systems
	{"./client ./cli/... ./config/quantity", "./client ./cli/... ./config/quantity github.com/alecthomas/kong/... " + tools},
	{"./config", "./config/... ./agent/embedded ./clients ./local/network ./local/sandbox/oci ./local/uids ./runtime/access github.com/alecthomas/kong/... " + tools},
	{"./server/metrics", ofServer + " github.com/prometheus/..."},
	{"./server/...", ofServer},
	{". ./doctor/... ./image", "./doctor/... ./image ./cli/... github.com/alecthomas/kong/... github.com/google/go-containerregistry/... " + ofServer},
	{"./test/...", "... " + heavy},
}

// match returns the first of some patterns that matches a path, or "".
func match(patterns, path string) string {
	for pattern := range strings.FieldsSeq(patterns) {
		parent, below := strings.CutSuffix(pattern, "/...")
		if pattern == "..." || path == parent || below && strings.HasPrefix(path, parent+"/") {
			return pattern
		}
	}
	return ""
}

func TestImportsFollowTheLayers(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-e", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var unused []string
	for _, layer := range layers {
		unused = append(unused, strings.Fields(layer.packages)...)
	}
	for line := range strings.Lines(strings.ReplaceAll(string(out), "github.com/rockpool/rockpool", ".")) {
		pkg := strings.Fields(line)[0]
		layer := slices.IndexFunc(layers, func(l struct{ packages, imports string }) bool { return match(l.packages, pkg) != "" })
		if layer < 0 {
			t.Fatalf("no layer names %s", pkg)
		}
		unused = slices.DeleteFunc(unused, func(pattern string) bool { return pattern == match(layers[layer].packages, pkg) })
		for _, imported := range strings.Fields(line)[1:] {
			special := match(heavy, imported)
			if special != "" && !slices.Contains(strings.Fields(layers[layer].imports), special) ||
				special == "" && strings.HasPrefix(imported, ".") && match(layers[layer].imports, imported) == "" {
				t.Errorf("%s imports %s; its layer may import %s", pkg, imported, layers[layer].imports)
			}
		}
	}
	if len(unused) > 0 {
		t.Errorf("these rules match no package: %q", unused)
	}
}
