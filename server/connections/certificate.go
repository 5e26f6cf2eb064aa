package connections

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Files has the files and options of a server's TLS.
type Files struct {
	Cert, Key  string
	MinVersion uint16 // a constant of crypto/tls
	ClientCA   string // if it is "", clients need no certificate
	Optional   bool   // with ClientCA: a client may send no certificate
}

// reloadEvery is the minimum interval between two checks for changed files.
const reloadEvery = time.Second

// Certificates has a server's certificate and the authorities of its clients. It reads them again
// when a file has changed: written, renamed, or replaced by another symbolic link. If the new files
// are invalid, the old ones stay in use. It is safe for concurrent use.
type Certificates struct {
	files  Files
	logger *zap.Logger

	mu      sync.Mutex // guards the fields below; held while the files, which are small, are read
	checked time.Time
	read    stamps  // of the files in use
	failed  *stamps // of the invalid files at the last check
	logged  bool    // failed was logged
	configs configs
}

// configs has the TLS configurations for handshakes.
type configs struct{ all, onlyHTTP1 *tls.Config }

// A stamp identifies a version of a file.
type stamp struct {
	device, inode uint64
	size          int64
	written       syscall.Timespec
	changed       syscall.Timespec
}

// stamps has the stamps of Cert, Key and ClientCA. The zero stamp means that no file is set.
type stamps [3]stamp

// LoadCertificates reads the files. It returns an error if they are invalid.
func LoadCertificates(files Files, logger *zap.Logger) (*Certificates, error) {
	c := &Certificates{files: files, logger: logger, checked: time.Now()}
	now, err := c.stamps()
	if err == nil {
		err = c.use(now)
	}
	return c, err
}

// config returns the configuration for a handshake. It reads changed files first.
func (c *Certificates) config(onlyHTTP1 bool) *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) >= reloadEvery {
		c.check()
		c.checked = time.Now()
	}
	if onlyHTTP1 {
		return c.configs.onlyHTTP1
	}
	return c.configs.all
}

// check reads changed files. It retries invalid files at each check, and logs them only at the
// second one, because an update replaces one file after the other.
func (c *Certificates) check() {
	now, err := c.stamps()
	if err == nil && now == c.read {
		c.failed = nil // the files in use are back
		return
	}
	if err == nil {
		err = c.use(now)
	}
	if err == nil {
		c.logger.Info("the certificate was reloaded", zap.String("file", c.files.Cert), zap.Time("valid until", c.configs.all.Certificates[0].Leaf.NotAfter))
		return
	}
	if c.failed == nil || *c.failed != now {
		c.failed, c.logged = &now, false
		return
	}
	if !c.logged {
		c.logged = true
		c.logger.Error("the changed certificate is invalid; the previous one stays in use", zap.Error(err))
	}
}

// stamps returns the current stamps of the files.
func (c *Certificates) stamps() (all stamps, err error) {
	for i, file := range []struct{ flag, name string }{{"--tls-cert", c.files.Cert}, {"--tls-key", c.files.Key}, {"--tls-client-ca", c.files.ClientCA}} {
		if file.name == "" {
			continue
		}
		var s syscall.Stat_t
		if err := syscall.Stat(file.name, &s); err != nil {
			return all, fmt.Errorf("read %s: %w", file.flag, &os.PathError{Op: "stat", Path: file.name, Err: err})
		}
		all[i] = stamp{s.Dev, s.Ino, s.Size, s.Mtim, s.Ctim}
	}
	return all, nil
}

// use reads the files and starts to use them.
func (c *Certificates) use(of stamps) error {
	cert, err := tls.LoadX509KeyPair(c.files.Cert, c.files.Key)
	if err != nil {
		return fmt.Errorf("read --tls-cert and --tls-key: %w", err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: c.files.MinVersion, NextProtos: []string{"h2", "http/1.1"}}
	if c.files.ClientCA != "" {
		if config.ClientCAs, err = authorities(c.files.ClientCA); err != nil {
			return fmt.Errorf("read --tls-client-ca: %w", err)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
		if c.files.Optional {
			config.ClientAuth = tls.VerifyClientCertIfGiven
		}
		config.SessionTicketsDisabled = true // removing an authority must have an immediate effect
	}
	onlyHTTP1 := config.Clone()
	onlyHTTP1.NextProtos = []string{"http/1.1"}
	// Nothing has changed so far: after an error, the previous certificate stays in use.
	c.configs, c.read, c.failed = configs{config, onlyHTTP1}, of, nil
	return nil
}

// authorities reads a PEM file with the certificates of authorities.
func authorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", file)
	}
	return pool, nil
}

// Pin returns the TLS configuration for a client on the server's machine. It trusts exactly the
// certificate in the server's file, whatever its names and issuer.
func Pin(file string) *tls.Config {
	return &tls.Config{
		InsecureSkipVerify: true, // VerifyConnection is stricter
		VerifyConnection: func(state tls.ConnectionState) error {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
				if block.Type != "CERTIFICATE" {
					continue
				}
				if bytes.Equal(block.Bytes, state.PeerCertificates[0].Raw) {
					return nil
				}
				break // the other certificates are authorities
			}
			return errors.New("the server's certificate isn't the one in " + file)
		},
	}
}
