package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// npmPackages returns the packages that the dashboard may contain: all in its lock file that aren't
// for development. The bundler may leave some out, for example types.
func npmPackages(source string) ([]component, error) {
	web := filepath.Join(source, "web")
	data, err := os.ReadFile(filepath.Join(web, "package-lock.json"))
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			Version, License string
			Dev, DevOptional bool
		}
	}
	if err := json.Unmarshal(data, &lock); err != nil {
		return nil, fmt.Errorf("read package-lock.json: %w", err)
	}
	var all []component
	for path, locked := range lock.Packages {
		if path == "" || locked.Dev || locked.DevOptional {
			continue
		}
		name := path[strings.LastIndex(path, "node_modules/")+len("node_modules/"):]
		purl := "pkg:npm/" + strings.Replace(name, "@", "%40", 1) + "@" + locked.Version
		c, err := identified(component{Name: name, Version: locked.Version, PURL: purl}, filepath.Join(web, path), locked.License)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}
