package attack

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	goruntime "runtime"
	"slices"
	"strings"
)

// archive returns an image with one layer, in the format of docker save. The layer's entries name the
// directory of the secret.
func archive(entries []entry, secret string) []byte {
	dir := path.Dir(secret)
	fill := strings.NewReplacer("{dir}", dir, "{below}", dir[1:]).Replace
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, e := range entries {
		header := tar.Header{Name: fill(e.Name), Linkname: fill(e.Link + e.Hard), Mode: 0o644, Typeflag: tar.TypeReg}
		switch {
		case e.Link != "":
			header.Typeflag, header.Mode = tar.TypeSymlink, 0
		case e.Hard != "":
			header.Typeflag, header.Mode = tar.TypeLink, 0
		}
		_ = w.WriteHeader(&header)
	}
	_ = w.Close()
	config, _ := json.Marshal(map[string]any{"os": "linux", "architecture": goruntime.GOARCH, "rootfs": map[string]any{
		"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))},
	}})
	return Saved("manifest.json", `[{"Config": "config.json", "Layers": ["layer.tar"]}]`, "config.json", string(config), "layer.tar", layer.String())
}

// Saved returns an image in the format of docker save, from the names and the texts of its parts.
func Saved(parts ...string) []byte {
	var all bytes.Buffer
	w := tar.NewWriter(&all) // a buffer never fails
	for part := range slices.Chunk(parts, 2) {
		_ = w.WriteHeader(&tar.Header{Name: part[0], Mode: 0o644, Size: int64(len(part[1]))})
		_, _ = w.Write([]byte(part[1]))
	}
	_ = w.Close()
	return all.Bytes()
}
