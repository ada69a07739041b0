package delivery

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// The headers of the Standard Webhooks specification, as net/http spells them.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// signatures returns the value of webhook-signature: one signature for each secret, so that a
// receiver finds one it can verify whichever of the secrets it holds.
func signatures(secrets []published.SigningSecret, id, timestamp string, body []byte) string {
	all := make([]string, 0, len(secrets))
	for _, secret := range secrets {
		if !secret.IsZero() { // an empty key would sign, and anybody could sign the same
			all = append(all, signature(secret, id, timestamp, body))
		}
	}
	return strings.Join(all, " ")
}

// signature is HMAC-SHA256 of "<id>.<timestamp>.<body>", under the version that means just that.
func signature(secret published.SigningSecret, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret.Key())
	_, _ = mac.Write([]byte(id + "." + timestamp + ".")) // never fails
	_, _ = mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// timestamp is in Unix seconds.
func (r Request) timestamp() string { return strconv.FormatInt(r.Now.Unix(), 10) }
