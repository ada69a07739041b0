// Package webhook makes the header of a webhook as the Standard Webhooks specification defines it, for all senders of events: the
// dispatcher, and a developer's kubectl merchant listen.
package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// The headers of the specification, as net/http spells them.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// What all requests share.
var contentType, userAgent = []string{"application/json"}, []string{"merchant-operator-webhooks"}

// Header returns the header of one attempt to deliver an event at a time, signed with each secret; nil: there is no secret to sign with.
func Header(id string, at time.Time, body []byte, secrets ...published.SigningSecret) http.Header {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signed := signatures(secrets, id, timestamp, body)
	if signed == "" {
		return nil
	}
	return http.Header{
		"Content-Type":  contentType,
		"User-Agent":    userAgent,
		headerID:        {id},
		headerTimestamp: {timestamp},
		headerSignature: {signed},
	}
}

// signatures returns the value of webhook-signature: one signature for each secret, so that a receiver with either
// secret of a rotation can verify it.
func signatures(secrets []published.SigningSecret, id, timestamp string, body []byte) string {
	all := make([]string, 0, len(secrets))
	for _, secret := range secrets {
		if !secret.IsZero() { // anybody could sign with an empty key
			all = append(all, signature(secret, id, timestamp, body))
		}
	}
	return strings.Join(all, " ")
}

// signature is HMAC-SHA256 of "<id>.<timestamp>.<body>", version 1 of Standard Webhooks.
func signature(secret published.SigningSecret, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret.Key())
	_, _ = mac.Write([]byte(id + "." + timestamp + ".")) // never fails
	_, _ = mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
