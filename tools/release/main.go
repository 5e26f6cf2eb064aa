// Command release writes the documents of a release's third-party components: a bill of materials
// (CycloneDX) and the texts of their licences. It reads the build information in the binaries,
// the dashboard's lock file, and the versions of the C library and compiler, so that both documents
// match the programs. It fails for a component with an unknown
// licence.
//
//	release -source DIR -version V -time RFC3339 -glibc V -gcc V -node V -sbom FILE -licences FILE BINARY...
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// A component is a third-party part of a release.
type component struct {
	Name, Version string
	PURL          string   // as in https://github.com/package-url/purl-spec
	Licence       string   // an SPDX expression
	Texts         []string // of its licence and notices
}

func main() {
	var source, version, time, sbom, licences, glibc, gcc, node string
	flag.StringVar(&source, "source", ".", "directory of the source, with the dashboard's node_modules")
	flag.StringVar(&version, "version", "", "version of the release")
	flag.StringVar(&time, "time", "", "time of its commit, in RFC 3339")
	flag.StringVar(&glibc, "glibc", "", "version of the C library in the sandbox helper")
	flag.StringVar(&gcc, "gcc", "", "version of the C compiler, whose runtime library is in the sandbox helper")
	flag.StringVar(&node, "node", "", "version of node, which compressed the dashboard")
	flag.StringVar(&sbom, "sbom", "", "file for the bill of materials")
	flag.StringVar(&licences, "licences", "", "file for the texts of the licences")
	flag.Parse()

	components, err := collect(source, glibc, gcc, flag.Args())
	if err == nil {
		err = errors.Join(writeSBOM(sbom, version, time, node, components), writeLicences(licences, components))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// collect returns all components, sorted and without duplicates.
func collect(source, glibc, gcc string, binaries []string) ([]component, error) {
	ofGo, err := goModules(source, binaries)
	if err != nil {
		return nil, err
	}
	ofNPM, err := npmPackages(source)
	if err != nil {
		return nil, err
	}
	// Linked statically into rockpool-sandbox.
	lgpl, err := os.ReadFile("/usr/share/common-licenses/LGPL-2.1") // Debian's base-files
	if err != nil {
		return nil, err
	}
	all := slices.Concat(ofGo, ofNPM, []component{
		{
			Name: "glibc", Version: glibc, PURL: "pkg:generic/glibc@" + glibc,
			Licence: "LGPL-2.1-or-later", Texts: []string{strings.TrimSpace(string(lgpl))},
		},
		{
			Name: "libgcc", Version: gcc, PURL: "pkg:generic/libgcc@" + gcc, // the exception requires no text
			Licence: "GPL-3.0-or-later WITH GCC-exception-3.1",
		},
	})
	slices.SortFunc(all, func(a, b component) int { return cmp.Compare(a.PURL, b.PURL) })
	return slices.CompactFunc(all, func(a, b component) bool { return a.PURL == b.PURL }), nil
}

func writeSBOM(file, version, time, node string, components []component) error {
	root := cdx.Component{
		Type: cdx.ComponentTypeApplication, Name: "rockpool", Version: version, BOMRef: "rockpool",
		PackageURL: "pkg:golang/github.com/rockpool/rockpool@" + version, Licenses: expression("Apache-2.0"),
	}
	var listed []cdx.Component
	var refs []string
	for _, c := range components {
		listed = append(listed, cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: c.Name, Version: c.Version, BOMRef: c.PURL, PackageURL: c.PURL, Licenses: expression(c.Licence),
		})
		refs = append(refs, c.PURL)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: time, Component: &root,
		Properties: &[]cdx.Property{{Name: "rockpool:build:node", Value: node}},
	}
	bom.Components = &listed
	bom.Dependencies = &[]cdx.Dependency{{Ref: root.BOMRef, Dependencies: &refs}}
	var b strings.Builder
	if err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

func expression(spdx string) *cdx.Licenses {
	return &cdx.Licenses{{Expression: spdx}}
}

// writeLicences writes a list of all components, then each text once with the components that have
// it.
func writeLicences(file string, components []component) error {
	var b strings.Builder
	b.WriteString("Rockpool contains the following components of others.\n\n")
	of := map[string][]string{}
	for _, c := range components {
		name := c.Name + " " + c.Version
		fmt.Fprintf(&b, "%s: %s\n", name, c.Licence)
		for _, text := range c.Texts {
			of[text] = append(of[text], name)
		}
	}
	inOrder := func(x, y string) int { return cmp.Or(cmp.Compare(of[x][0], of[y][0]), cmp.Compare(x, y)) }
	for _, text := range slices.SortedFunc(maps.Keys(of), inOrder) {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(of[text], "\n"), text)
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}
