package config

import (
	"cmp"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Images are the settings for container images of runners on this machine.
type Images struct {
	CacheBytes int64    `env:"ROCKPOOL_IMAGE_CACHE_BYTES" default:"20GiB" type:"size" placeholder:"SIZE" help:"Disk space for container images on this machine. Unused images are deleted first, images in use never. Allowed: 64MiB to 1PiB. (${default}; $$${env})"`
	Bytes      int64    `env:"ROCKPOOL_IMAGE_BYTES" default:"10GiB" type:"size" placeholder:"SIZE" help:"Largest size of one unpacked image. Allowed: 1MiB to 1PiB. (${default}; $$${env})"`
	Timeout    int      `env:"ROCKPOOL_IMAGE_TIMEOUT" default:"30m" type:"time" placeholder:"TIME" help:"How long one attempt to pull an image may take. Allowed: 1s to 1d. (${default}; $$${env})"`
	Files      string   `env:"ROCKPOOL_IMAGE_FILES" placeholder:"DIR" complete:"file" help:"Directory of image archives and OCI layouts that environments can name as file:NAME. (image-files in the data directory; $$${env})"`
	Registries []string `env:"ROCKPOOL_IMAGE_REGISTRIES" placeholder:"HOST,…" help:"Registries that the server may contact for images, and the hosts that these lead to, for example for tokens and layers. Name the port if it isn't 443. *.example.org: all hosts below example.org. With --cluster=nomad the nodes fetch images, so leave this out. (any; $$${env})"`
	CACert     string   `name:"ca-cert" env:"ROCKPOOL_IMAGE_CA_CERT" placeholder:"FILE" complete:"file" help:"PEM file with authorities that sign registries' certificates, in addition to the machine's. ($$${env})"`
	Stall      int      `env:"ROCKPOOL_IMAGE_STALL" default:"1m" type:"time" placeholder:"TIME" help:"How long a registry may take to send 64 KiB. A slower pull has stalled, and is tried again. Allowed: 1s to 4m. (${default}; $$${env})"`
	PlainHTTP  []string `name:"plain-http" env:"ROCKPOOL_IMAGE_PLAIN_HTTP" placeholder:"HOST:PORT,…" help:"Registries without TLS, for example registry.example.org:5000. Registries on this machine's loopback need no entry. ($$${env})"`
}

// check completes the settings; data is the server's directory.
func (c *Images) check(data string) error {
	err := cmp.Or(
		within("image-cache-bytes", c.CacheBytes, 64<<20, 1<<50, " bytes"),
		within("image-bytes", c.Bytes, 1<<20, 1<<50, " bytes"),
		within("image-timeout", c.Timeout, 1, 86400, " seconds"),
		within("image-stall", c.Stall, 1, 240, " seconds"),
	)
	if err != nil {
		return err
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

// isHost reports whether a text is a host, with or without a port.
func isHost(text string) bool {
	u, err := url.Parse("//" + text)
	return err == nil && u.Hostname() != "" && u.Host == text
}
