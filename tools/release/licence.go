package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

var (
	isLicence = regexp.MustCompile(`(?i)(licen[cs]e|copying)`)
	isNotice  = regexp.MustCompile(`(?i)^(notice|patents|copyright|authors|contributors)`)
	isSource  = regexp.MustCompile(`\.(go|[cm]?js|ts|json|ya?ml)$`)
)

// licence reads a component's licence and notices from the top of its directory. The expression is
// empty if no text is known.
func licence(dir string) (expression string, texts []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", nil, err
	}
	var ids []string
	for _, entry := range entries {
		name := entry.Name()
		if !entry.Type().IsRegular() || isSource.MatchString(name) || !isLicence.MatchString(name) && !isNotice.MatchString(name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", nil, err
		}
		texts = append(texts, strings.TrimSpace(string(text)))
		if isLicence.MatchString(name) {
			for _, match := range licensecheck.Scan(text).Match {
				ids = append(ids, match.ID)
			}
		}
	}
	slices.Sort(ids)
	return strings.Join(slices.Compact(ids), " AND "), texts, nil
}

// identified completes a component with the licence in its directory. If no text is known, the
// declared licence counts.
func identified(c component, dir, declared string) (component, error) {
	var err error
	if c.Licence, c.Texts, err = licence(dir); err != nil {
		return component{}, fmt.Errorf("licence of %s %s: %w", c.Name, c.Version, err)
	}
	if declared != "" {
		c.Licence = declared
	}
	if c.Licence == "" {
		return component{}, fmt.Errorf("%s %s has no known licence in %s", c.Name, c.Version, dir)
	}
	return c, nil
}
