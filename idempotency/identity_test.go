package idempotency

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// certificate signs one for name or uri with a new key each time, as a renewal has.
func certificate(t *testing.T, issuer, name, uri string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(1)}
	if name != "" {
		leaf.Subject = pkix.Name{CommonName: name}
	}
	if uri != "" {
		u, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		leaf.URIs = []*url.URL{u}
	}
	parent := &x509.Certificate{Subject: pkix.Name{CommonName: issuer}}
	der, err := x509.CreateCertificate(rand.Reader, leaf, parent, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func verified(cert *x509.Certificate) tls.ConnectionState {
	return tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}, VerifiedChains: [][]*x509.Certificate{{cert}}}
}

func withState(state tls.ConnectionState) context.Context {
	return peer.NewContext(context.Background(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: state}})
}

// A renewed certificate is the same caller; another name, issuer or URI is not.
func TestPeerIdentity(t *testing.T) {
	seen := make(map[string]string)
	for _, c := range []struct{ issuer, name, uri string }{
		{"ca", "ann", ""}, {"ca", "bob", ""}, {"other ca", "ann", ""},
		{"ca", "ann", "spiffe://a/ann"}, {"ca", "", "spiffe://a/bob"},
	} {
		var ids [2]string
		for i := range ids {
			id, err := PeerIdentity(withState(verified(certificate(t, c.issuer, c.name, c.uri))))
			if err != nil || id == "" {
				t.Fatalf("%v has identity %q, %v", c, id, err)
			}
			ids[i] = id
		}
		if ids[0] != ids[1] {
			t.Errorf("%v was %q and is %q when renewed", c, ids[0], ids[1])
		}
		if other, ok := seen[ids[0]]; ok {
			t.Errorf("%v is taken for %s", c, other)
		}
		seen[ids[0]] = c.name + c.uri
	}
}

func TestPeerIdentityRefuses(t *testing.T) {
	unverified := tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate(t, "ca", "ann", "")}}
	tests := []struct {
		name string
		ctx  context.Context
		want string
	}{
		{"no peer", context.Background(), "no peer"},
		{"plain text", peer.NewContext(context.Background(), &peer.Peer{}), "no TLS"},
		{"no certificate", withState(tls.ConnectionState{}), "no verified certificate"},
		{"not verified", withState(unverified), "no verified certificate"},
		{"no name", withState(verified(certificate(t, "ca", "", ""))), "neither URI nor subject"},
	}
	for _, test := range tests {
		if id, err := PeerIdentity(test.ctx); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: identity %q, %v, want %q", test.name, id, err, test.want)
		}
	}
}

// PeerIdentity serves HTTP too.
func TestPeerIdentityOfHTTP(t *testing.T) {
	r := httptest.NewRequest("POST", "/", nil)
	if _, err := PeerIdentity(withPeer(r)); err == nil {
		t.Error("a request without TLS has an identity")
	}
	state := verified(certificate(t, "ca", "ann", ""))
	r.TLS = &state
	if _, err := PeerIdentity(withPeer(r)); err != nil {
		t.Error(err)
	}
}
