package idempotency

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// PeerIdentity is an [Options.Caller] that takes the identity from the client
// certificate of the connection: its first URI (a SPIFFE ID), or else its
// subject and issuer. These stay the same when a certificate is renewed, so that
// a retry after that finds its key. A certificate that was not verified is an
// error, as is none.
func PeerIdentity(ctx context.Context) (string, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", errors.New("no peer")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return "", errors.New("the connection has no TLS")
	}
	if len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return "", errors.New("the peer has no verified certificate")
	}
	return certificateIdentity(info.State.VerifiedChains[0][0])
}

func certificateIdentity(leaf *x509.Certificate) (string, error) {
	if len(leaf.URIs) > 0 {
		return "uri:" + leaf.URIs[0].String(), nil
	}
	if len(leaf.Subject.Names) == 0 {
		return "", errors.New("the peer's certificate has neither URI nor subject")
	}
	// The raw names, with their lengths: two that only look the same are two.
	return fmt.Sprintf("subject:%d:%x:%x", len(leaf.RawSubject), leaf.RawSubject, leaf.RawIssuer), nil
}
