package apiserver

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/payer"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// payerPages are the pages of payers.
type payerPages struct {
	*payer.Pages

	// base is --public-url without a slash at its end; empty: unknown.
	base string
	// linkInQR: QR codes hold the address of the page instead of the payload.
	linkInQR    bool
	compressors sync.Pool // of *gzip.Writer, each of which takes 800 KB to make
}

func newPayerPages(options Options) (*payerPages, error) {
	pages, err := payer.New()
	if err != nil {
		return nil, err
	}
	p := &payerPages{Pages: pages, base: strings.TrimSuffix(options.PublicURL, "/"), linkInQR: options.QRContent == QRContentLink}
	p.compressors.New = func() any { return gzip.NewWriter(nil) }
	return p, nil
}

// link is the value of the header Link for a session's page. Without a base it is relative: the client resolves it with the address it
// has sent the request to (RFC 8288), which no proxy can spoil and no Host header forge.
func (p *payerPages) link(id session.ID) string {
	return "<" + p.base + payer.Path(id) + `>; rel="payment"`
}

// pagePolicy allows a page its own assets, and to ask for its own status.
const pagePolicy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

// page is a web.Handler whose answers a payer sees: also its errors are pages, but for those that only a developer can have caused.
func (a *publicAPI) page(serve web.Handler) web.Handler {
	return func(e *web.Event, w http.ResponseWriter, r *http.Request) error {
		header := w.Header()
		header.Set("Content-Security-Policy", pagePolicy)
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		failure := serve(e, w, r)
		if failure == nil {
			return nil
		}
		status := e.Answer(failure).Status
		if status < http.StatusInternalServerError && status != http.StatusNotFound && status != http.StatusTooManyRequests {
			return failure
		}
		problem, err := a.pages.Problem(acceptLanguage(r), status)
		if err != nil {
			return err
		}
		if _, gone := e.BeginError(w, r, failure); !gone {
			a.pages.write(w, r, status, htmlContent, problem)
		}
		return nil
	}
}

const (
	htmlContent = "text/html; charset=utf-8"
	svgContent  = "image/svg+xml"
)

// paymentPage serves the page on which a payer pays. Whoever has the session id may see it.
func (a *publicAPI) paymentPage(e *web.Event, w http.ResponseWriter, r *http.Request) error {
	payment, err := a.payment(e, w, r)
	if err != nil {
		return err
	}
	return a.respondPayment(e, w, r, http.StatusOK, payment)
}

func (a *publicAPI) respondPayment(e *web.Event, w http.ResponseWriter, r *http.Request, status int, payment *payer.Payment) error {
	rendered, err := a.pages.Payment(acceptLanguage(r), payment)
	if err != nil {
		return err
	}
	a.pages.write(w, r, status, htmlContent, rendered)
	return nil
}

// qrCode serves the QR code of a session by itself. One that has ended has none, so that nobody pays it: the answer is its page.
func (a *publicAPI) qrCode(e *web.Event, w http.ResponseWriter, r *http.Request) error {
	width := payer.DefaultCodeWidth
	if size := r.URL.Query().Get("size"); size != "" {
		var err error
		width, err = strconv.Atoi(size)
		if err != nil || width < payer.MinCodeWidth || width > payer.MaxCodeWidth {
			return web.RequestError("size must be an integer from " + strconv.Itoa(payer.MinCodeWidth) + " to " + strconv.Itoa(payer.MaxCodeWidth))
		}
	}
	payment, err := a.payment(e, w, r)
	if err != nil {
		return err
	}
	if payment.Status != session.Pending {
		return a.respondPayment(e, w, r, http.StatusGone, payment)
	}
	code, err := payer.NewCode(payment.QRText)
	if err != nil {
		return err
	}
	a.pages.write(w, r, http.StatusOK, svgContent, code.SVG(width))
	return nil
}

// payment reads what a payer sees of a session: what it was created with, and the present look of its merchant.
func (a *publicAPI) payment(e *web.Event, w http.ResponseWriter, r *http.Request) (*payer.Payment, error) {
	id, err := publicID(e, r)
	if err != nil {
		return nil, err
	}
	address, err := a.clients.Resolve(r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
	if err != nil {
		return nil, err
	}
	read, err := a.readPublic(e, w, r, clientaddr.LimitKey(address), id)
	if err != nil {
		return nil, err
	}
	payment := &payer.Payment{
		ID: id, MerchantName: read.MerchantName, AmountCents: read.AmountCents, Currency: read.Currency,
		Status: read.Status, ExpiresIn: read.ExpiresIn, Payload: a.qrPayload(id),
	}
	payment.QRText = payment.Payload
	if a.pages.linkInQR {
		payment.QRText = a.pages.base + payer.Path(id)
	}
	if merchant := a.directory.Merchant(read.MerchantID); merchant != nil {
		payment.AccentColor, payment.ReturnURL = merchant.Page.AccentColor, merchant.Page.ReturnURL
	}
	return payment, nil
}

// pageAsset serves the stylesheet and the script of pages.
func (a *publicAPI) pageAsset(e *web.Event, w http.ResponseWriter, r *http.Request) error {
	asset, current, found := a.pages.Asset(r.PathValue("version"), r.PathValue("file"), r.URL.Query().Get("accent"))
	if !found {
		return web.ErrNoRoute
	}
	header := w.Header()
	if current {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	header.Set("Vary", "Accept-Encoding")
	if asset.Gzipped == nil || !acceptsGzip(r) {
		a.pages.write(w, r, http.StatusOK, asset.ContentType, asset.Content)
		return nil
	}
	header.Set("Content-Type", asset.ContentType)
	header.Set("Content-Encoding", "gzip")
	_, _ = w.Write(asset.Gzipped)
	return nil
}

// widget serves the script that shops include in pages of other origins. Browsers keep it for five minutes, so that a fix reaches
// every shop soon.
func (a *publicAPI) widget(e *web.Event, w http.ResponseWriter, r *http.Request) error {
	asset := a.pages.Widget()
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", "*")
	header.Set("Cross-Origin-Resource-Policy", "cross-origin") // for pages with Cross-Origin-Embedder-Policy
	header.Set("Cache-Control", "public, max-age=300")
	header.Set("Vary", "Accept-Encoding")
	header.Set("ETag", `W/"`+asset.Tag+`"`) // weak: it is of both encodings
	header.Set("Content-Type", asset.ContentType)
	content := asset.Content
	if acceptsGzip(r) {
		header.Set("Content-Encoding", "gzip")
		content = asset.Gzipped
	}
	r.Header.Del("Range") // a script is loaded as a whole
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	return nil
}

// write answers with a body, compressed if the client accepts that.
func (p *payerPages) write(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	if !acceptsGzip(r) {
		w.WriteHeader(status)
		_, _ = w.Write(body) //nolint:gosec // html/template has escaped what is not ours; an error: the client has disconnected
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	compressor, _ := p.compressors.Get().(*gzip.Writer)
	defer p.compressors.Put(compressor)
	compressor.Reset(w)
	_, _ = compressor.Write(body)
	_ = compressor.Close()
}

// acceptsGzip reports whether the client names gzip among the encodings it accepts.
func acceptsGzip(r *http.Request) bool {
	for _, line := range r.Header["Accept-Encoding"] {
		for encoding := range strings.SplitSeq(line, ",") {
			name, parameters, _ := strings.Cut(encoding, ";")
			quality, given := strings.CutPrefix(strings.TrimSpace(parameters), "q=")
			if weight, err := strconv.ParseFloat(quality, 64); strings.EqualFold(strings.TrimSpace(name), "gzip") && (!given || (err == nil && weight > 0)) {
				return true
			}
		}
	}
	return false
}

func acceptLanguage(r *http.Request) string { return strings.Join(r.Header["Accept-Language"], ",") }
