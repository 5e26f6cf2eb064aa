package config

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Images are the settings for container images of runners on this machine.
type Images struct {
	CacheBytes int64    `env:"ROCKPOOL_IMAGE_CACHE_BYTES" default:"21474836480" type:"size" placeholder:"SIZE" help:"Bytes that images may take on this machine, 67108864 to 1125899906842624: those that nobody uses go first, those in use never. (${default}; $$${env})"`
	Bytes      int64    `env:"ROCKPOOL_IMAGE_BYTES" default:"10737418240" type:"size" placeholder:"SIZE" help:"Bytes that one image may have when it is unpacked, 1048576 to 1125899906842624. (${default}; $$${env})"`
	Timeout    int      `env:"ROCKPOOL_IMAGE_TIMEOUT" default:"1800" type:"time" placeholder:"TIME" help:"How long one try to pull an image may take, 1 to 86400. (${default}; $$${env})"`
	Files      string   `env:"ROCKPOOL_IMAGE_FILES" placeholder:"DIR" complete:"file" help:"Directory of archives and layouts that environments may name as file:NAME. (image-files in the data directory; $$${env})"`
	Registries []string `env:"ROCKPOOL_IMAGE_REGISTRIES" placeholder:"HOST,…" help:"Registries that may be asked for images, with ports where those aren't 443, and hosts that they lead to, as for tokens and layers; *.example.org are all below it. (any; $$${env})"`
	CACert     string   `name:"ca-cert" env:"ROCKPOOL_IMAGE_CA_CERT" placeholder:"FILE" complete:"file" help:"Certificates of authorities that registries' are by, beside the machine's. ($$${env})"`
	Stall      int      `env:"ROCKPOOL_IMAGE_STALL" default:"60" type:"time" placeholder:"TIME" help:"How long a registry may take for 64 KiB, 1 to 240: what comes more slowly has stalled, and is tried again. (${default}; $$${env})"`
	PlainHTTP  []string `name:"plain-http" env:"ROCKPOOL_IMAGE_PLAIN_HTTP" placeholder:"HOST:PORT,…" help:"Registries that have no TLS, beside those on this machine's loopback. ($$${env})"`
}

// check completes the settings; data is the server's directory.
func (c *Images) check(data string) error {
	for _, b := range []struct {
		flag             string
		value, low, high int64
		unit             string
	}{
		{"image-cache-bytes", c.CacheBytes, 64 << 20, 1 << 50, "bytes"},
		{"image-bytes", c.Bytes, 1 << 20, 1 << 50, "bytes"},
		{"image-timeout", int64(c.Timeout), 1, 86400, "seconds"},
		{"image-stall", int64(c.Stall), 1, 240, "seconds"},
	} {
		if b.value < b.low || b.value > b.high {
			return &Error{b.flag, strconv.FormatInt(b.value, 10), fmt.Sprintf("%d to %d %s", b.low, b.high, b.unit)}
		}
	}
	for _, host := range c.Registries {
		if name := strings.TrimPrefix(host, "*."); !isHost(name) || strings.Contains(name, "*") {
			return &Error{"image-registries", host, "registries' hosts, without https:// or a path, for example registry.example.org, registry.example.org:5000 or *.example.org"}
		}
	}
	if c.CACert != "" {
		if _, err := os.ReadFile(c.CACert); err != nil {
			return &Error{"image-ca-cert", c.CACert, "a file that can be read: " + reason(err)}
		}
	}
	for _, host := range c.PlainHTTP {
		if _, _, noPort := net.SplitHostPort(host); !isHost(host) || noPort != nil {
			return &Error{"image-plain-http", host, "registries' hosts and ports, without http://, for example registry.example.org:5000"}
		}
	}
	if c.Files == "" {
		c.Files = filepath.Join(data, "image-files")
	}
	dir, err := filepath.Abs(c.Files)
	if err != nil {
		return &Error{"image-files", c.Files, "a directory: " + err.Error()}
	}
	c.Files = dir
	return nil
}

// isHost reports whether a text is a host, with a port or not.
func isHost(text string) bool {
	u, err := url.Parse("//" + text)
	return err == nil && u.Hostname() != "" && u.Host == text
}
