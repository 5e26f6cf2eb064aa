package nomadtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// files are the paths of certificates and keys.
type files struct {
	ca, serverCert, serverKey, clientCert, clientKey string
}

// makeCertificates makes an authority, and certificates of an agent and of a client.
func makeCertificates(dir string) (*files, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	f := &files{
		ca:         at("ca.pem"),
		serverCert: at("server.pem"), serverKey: at("server-key.pem"),
		clientCert: at("client.pem"), clientKey: at("client-key.pem"),
	}
	authority := certificate("Rockpool's tests")
	authority.IsCA, authority.KeyUsage = true, x509.KeyUsageCertSign
	authority.BasicConstraintsValid = true
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	i := &issuer{authority: authority, key: key}
	// Nomad requires the region in a server's name.
	server := certificate("server.global.nomad", "server.global.nomad", "client.global.nomad", "localhost")
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	err = errors.Join(
		i.issue(authority, key, f.ca, ""),
		i.make(server, f.serverCert, f.serverKey),
		i.make(certificate("rockpool"), f.clientCert, f.clientKey),
	)
	return f, err
}

// certificate returns an unsigned certificate for both server and client. It is valid for a day.
// names are its DNS names.
func certificate(name string, names ...string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetInt64(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     names,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// An issuer signs certificates with an authority's key.
type issuer struct {
	authority *x509.Certificate
	key       *ecdsa.PrivateKey
}

// make signs a certificate for a new key and writes both.
func (i *issuer) make(c *x509.Certificate, certPath, keyPath string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return i.issue(c, key, certPath, keyPath)
}

// issue signs a certificate for a key and writes both. It writes no key if keyPath is empty.
func (i *issuer) issue(c *x509.Certificate, key *ecdsa.PrivateKey, certPath, keyPath string) error {
	der, err := x509.CreateCertificate(rand.Reader, c, i.authority, &key.PublicKey, i.key)
	if err != nil {
		return err
	}
	err = writePEM(certPath, "CERTIFICATE", der)
	if err != nil || keyPath == "" {
		return err
	}
	if der, err = x509.MarshalECPrivateKey(key); err != nil {
		return err
	}
	return writePEM(keyPath, "EC PRIVATE KEY", der)
}

// writePEM writes a file that only its owner can read.
func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
