package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
)

type listCommand struct {
	settings
	output.Format
	Recipes bool `help:"List the languages that rockpool image build can install instead, with their packages."`
}

// A listedFile is an archive, and a listedRecipe a language, in the list.
type (
	listedFile struct {
		Image string    `json:"image"` // as environments name it
		Bytes int64     `json:"bytes"`
		At    time.Time `json:"modifiedAt"`
	}
	listedRecipe struct {
		ID     string   `json:"id"`
		Name   string   `json:"name"`
		Debian []string `json:"debian"`
	}
)

// Run lists the images or the recipes.
func (c *listCommand) Run(s command.Streams) error {
	directory, recipes, err := c.read()
	if err != nil {
		return err
	}
	if c.Recipes {
		all, t := []listedRecipe{}, output.Table{Head: []string{"LANGUAGE", "NAME", "PACKAGES"}}
		for _, r := range recipes.All() {
			if len(r.Debian) > 0 {
				all = append(all, listedRecipe{r.ID, r.Name, r.Debian})
				t.Rows = append(t.Rows, []string{r.ID, r.Name, strings.Join(r.Debian, " ")})
			}
		}
		return c.Format.List(s.Out, s.Err, all, t, "no recipe names packages of Debian")
	}
	entries, err := os.ReadDir(directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all, t := []listedFile{}, output.Table{Head: []string{"IMAGE", "SIZE", "MODIFIED"}}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		f := listedFile{"file:" + e.Name(), info.Size(), info.ModTime()}
		size := fmt.Sprintf("%d MiB", f.Bytes>>20)
		if e.IsDir() {
			size = "layout"
		}
		all = append(all, f)
		t.Rows = append(t.Rows, []string{f.Image, size, output.Ago(&f.At)})
	}
	return c.Format.List(s.Out, s.Err, all, t, "no images in "+directory+": `rockpool image build` makes one")
}
