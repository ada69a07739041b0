// Package issuer asks the internal port of the API: to rotate keys, for new signing secrets, and what is accepted.
package issuer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/audit"
)

// Client rotates keys, reads new signing secrets, and asks which keys are accepted, through the internal port of the API: the only place where the
// plaintext of a key exists besides the page that shows it. It is safe for concurrent use.
type Client struct {
	http *http.Client
	url  string // origin of the internal port
}

// Errors of a rotation.
var (
	// ErrGeneration means that the key was rotated since the person saw it. Nothing was rotated now.
	ErrGeneration = errors.New("the key was rotated meanwhile")
	// ErrNotPublished means that the operator has not published the ApiKey, or made the signing secret, yet.
	ErrNotPublished = errors.New("the key is not published yet")
	// ErrRefused means that the API refuses the console itself, so that asking again does not help.
	ErrRefused = errors.New("the internal API refuses the console")
	// ErrTooOften means that the ApiKey was rotated too often. Nothing was rotated now.
	ErrTooOften = errors.New("the key was rotated too often")
	// ErrNoTime means that a rotation was not started, because the request would end before its answer could be shown.
	ErrNoTime = errors.New("too late to rotate the key in this request")
	// ErrUnknownOutcome means that nobody knows whether the key was rotated.
	ErrUnknownOutcome = errors.New("unknown whether the key was rotated")
)

// Timeout is more than the API takes: 4 s to review the console's token, 3 s at the Kubernetes API, and Redis twice.
const Timeout = 10 * time.Second

// Options configure a Client.
type Options struct {
	// URL is the origin of the API's internal port.
	URL string
	// CAFile has the certificate authority of the port; empty: the authorities of the system.
	CAFile string
	// TokenFile has the token for the port; empty: the account's token.
	TokenFile string
}

// New returns a Client with the token of the console's account, which client-go reads again when it is renewed.
func New(cluster *rest.Config, options Options) (*Client, error) {
	config := rest.AnonymousClientConfig(cluster)
	config.Host, config.UserAgent = options.URL, cluster.UserAgent
	config.BearerToken, config.BearerTokenFile = cluster.BearerToken, cluster.BearerTokenFile
	config.TLSClientConfig = rest.TLSClientConfig{
		CAFile: options.CAFile,
		// A connection that a balancer forgot is closed with its first request. Over HTTP/2 all rotations would wait for it together.
		NextProtos: []string{"http/1.1"},
	}
	if options.TokenFile != "" {
		config.BearerToken, config.BearerTokenFile = "", options.TokenFile
	}
	config.Timeout = Timeout
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create a client of --internal-url: %w", err)
	}
	return &Client{client, strings.TrimSuffix(options.URL, "/")}, nil
}

// Rotate replaces the key of that generation of the ApiKey. The old one stays valid for the overlap. Which key that is follows from
// the UID; a status names what its tenant likes. Errors: those above, or that the console may not rotate keys.
func (c *Client) Rotate(ctx context.Context, key *v1alpha1.ApiKey, generation int64, overlap time.Duration, actor string) (rotation.Issued, error) {
	body, err := json.Marshal(rotation.Request{
		Namespace: key.Namespace, Name: key.Name, UID: key.UID,
		ExpectedGeneration: generation, OverlapSeconds: int64(overlap.Seconds()), Actor: actor,
	})
	if err != nil {
		return rotation.Issued{}, err
	}
	if deadline, limited := ctx.Deadline(); limited && time.Until(deadline) < Timeout+audit.Timeout {
		return rotation.Issued{}, ErrNoTime
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout) // who closes the page does not abort a rotation
	defer cancel()
	answer, err := c.post(ctx, rotation.PathFor(published.ID(key.UID)), body)
	if err != nil {
		return rotation.Issued{}, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	switch answer.status {
	case http.StatusOK:
		var issued rotation.Issued
		if err := json.Unmarshal(answer.body, &issued); err != nil || issued.FullKey == "" {
			return rotation.Issued{}, fmt.Errorf("%w: the answer is not understood", ErrUnknownOutcome) // never quote it
		}
		return issued, nil
	case http.StatusConflict:
		return rotation.Issued{}, ErrGeneration
	case http.StatusNotFound:
		if answer.code == "key_not_found" { // any other 404: this API has no such route
			return rotation.Issued{}, ErrNotPublished
		}
		return rotation.Issued{}, fmt.Errorf("%w: %d: %s", ErrRefused, answer.status, answer.body)
	case http.StatusTooManyRequests:
		return rotation.Issued{}, ErrTooOften
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		return rotation.Issued{}, fmt.Errorf("%w: %d: %s", ErrRefused, answer.status, answer.body)
	}
	return rotation.Issued{}, fmt.Errorf("%w: %d", ErrUnknownOutcome, answer.status)
}

// acceptedTimeout limits one question about what is in force: the page says that it is unknown then.
const acceptedTimeout = 3 * time.Second

// Accepted returns what is in force of a Merchant and of ApiKeys.
func (c *Client) Accepted(ctx context.Context, merchant types.UID, keys []types.UID) (Acceptance, error) {
	ctx, cancel := context.WithTimeout(ctx, acceptedTimeout)
	defer cancel()
	found := Acceptance{Keys: map[types.UID]bool{}}
	for {
		some := keys[:min(len(keys), rotation.MaxAccepted)]
		answer, err := c.send(ctx, http.MethodGet, rotation.AcceptedPath+"?"+rotation.AcceptedQuery(merchant, some), nil)
		if err != nil {
			return Acceptance{}, err
		}
		var said rotation.Accepted
		if err := json.Unmarshal(answer.body, &said); answer.status != http.StatusOK || err != nil {
			return Acceptance{}, fmt.Errorf("the internal API answers the console: %d: %s", answer.status, answer.body)
		}
		found.Merchant = said.MerchantState
		for _, uid := range said.Keys {
			found.Keys[uid] = true
		}
		if keys = keys[len(some):]; len(keys) == 0 {
			return found, nil
		}
	}
}

// SigningSecret returns the signing secret of a webhook that was rotated with the trigger of the nonce. ErrNotPublished: there is none for this
// nonce, yet. ErrRefused: there will be no answer. Any other error may pass.
func (c *Client) SigningSecret(ctx context.Context, merchant *v1alpha1.Merchant, nonce, actor string) (shown rotation.SigningSecret, err error) {
	body, err := json.Marshal(rotation.SigningRequest{Namespace: merchant.Namespace, Name: merchant.Name, UID: merchant.UID, Nonce: nonce, Actor: actor})
	if err != nil {
		return shown, err
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	answer, err := c.post(ctx, rotation.SigningPathFor(published.ID(merchant.UID)), body)
	if err != nil {
		return shown, err
	}
	switch answer.status {
	case http.StatusOK:
		if err := json.Unmarshal(answer.body, &shown); err != nil || shown.Secret == "" {
			return shown, errors.New("the answer of the internal API is not understood") // never quote it
		}
		return shown, nil
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		return shown, fmt.Errorf("%w: %d: %s", ErrRefused, answer.status, answer.body)
	}
	if answer.status == http.StatusNotFound && answer.code == "signing_secret_not_found" { // any other 404: this API has no such route
		return shown, ErrNotPublished
	}
	return shown, fmt.Errorf("the internal API answers the console: %d: %s", answer.status, answer.body)
}

// answer is one of the internal port. code is its Error-Code.
type answer struct {
	status int
	code   string
	body   []byte
}

// post sends a JSON body.
func (c *Client) post(ctx context.Context, path string, body []byte) (answer, error) {
	return c.send(ctx, http.MethodPost, path, body)
}

func (c *Client) send(ctx context.Context, method, path string, body []byte) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if len(body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	const enough = 16 << 10
	text, err := io.ReadAll(io.LimitReader(response.Body, enough))
	return answer{response.StatusCode, response.Header.Get("Error-Code"), text}, err
}
