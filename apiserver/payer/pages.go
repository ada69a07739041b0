package payer

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/payer/page"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// pagePolicy allows a page its own assets, and to ask for its own status.
const (
	pageSources = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
	pagePolicy  = pageSources + "form-action 'none'; frame-ancestors 'none'"
)

// Page wraps a handler whose answers a payer sees: also its errors are pages, but for those that only a developer can have caused.
func (h *Handler) Page(serve web.Handler) web.Handler {
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
		problem, err := h.pages.Problem(acceptLanguage(r), status)
		if err != nil {
			return err
		}
		if _, gone := e.BeginError(w, r, failure); !gone {
			writeAsset(w, r, status, problem)
		}
		return nil
	}
}

const (
	htmlContent = "text/html; charset=utf-8"
	svgContent  = "image/svg+xml"
)

// Payment serves the page on which a payer pays. Anyone with the session id may see it.
func (h *Handler) Payment(e *web.Event, w http.ResponseWriter, r *http.Request) error {
	payment, err := h.payment(e, w, r)
	if err != nil {
		return err
	}
	return h.respondPayment(w, r, http.StatusOK, payment)
}

func (h *Handler) respondPayment(w http.ResponseWriter, r *http.Request, status int, payment *page.Payment) error {
	if payment.RefusedUnread {
		refused, err := h.refused(r, payment.ID)
		payment.Refused, payment.RefusedUnread = refused, err != nil // the page has all else
	}
	rendered, err := h.pages.Payment(acceptLanguage(r), payment)
	if err != nil {
		return err
	}
	if payment.Playable() {
		w.Header().Set("Content-Security-Policy", testPagePolicy)
	}
	h.write(w, r, status, htmlContent, rendered)
	return nil
}

// QRCode serves only the QR code of a session. One that has ended has none, so that nobody pays it: the answer is its page.
func (h *Handler) QRCode(e *web.Event, w http.ResponseWriter, r *http.Request) error {
	width := page.DefaultCodeWidth
	if size := r.URL.Query().Get("size"); size != "" {
		var err error
		width, err = strconv.Atoi(size)
		if err != nil || width < page.MinCodeWidth || width > page.MaxCodeWidth {
			return web.RequestError("size must be an integer from " + strconv.Itoa(page.MinCodeWidth) + " to " + strconv.Itoa(page.MaxCodeWidth))
		}
	}
	payment, err := h.payment(e, w, r)
	if err != nil {
		return err
	}
	if payment.Status != session.Pending {
		return h.respondPayment(w, r, http.StatusGone, payment)
	}
	code, err := page.NewCode(payment.QRText)
	if err != nil {
		return err
	}
	h.write(w, r, http.StatusOK, svgContent, code.SVG(width))
	return nil
}

// payment reads a session, and the present name and look of its merchant, for a payer. It does not read the session's refused
// payments: only the page shows them.
func (h *Handler) payment(e *web.Event, w http.ResponseWriter, r *http.Request) (*page.Payment, error) {
	id, subject, err := h.ask(e, w, r)
	if err != nil {
		return nil, err
	}
	sess, err := h.readPublic(e, w, r, subject, id)
	if err != nil {
		return nil, err
	}
	payment := &page.Payment{
		ID: id, MerchantName: sess.MerchantName, Description: sess.Description, AmountCents: sess.AmountCents, Currency: sess.Currency,
		Status: sess.Status, ExpiresIn: sess.ExpiresIn, Payload: h.links.Payload(id), AppURL: h.links.appURL(id),
		Receipt:       page.Receipt{TaxCents: sess.TaxCents, TipCents: sess.TipCents, RefundedCents: sess.RefundedCents},
		RefusedUnread: sess.Refused,
	}
	payment.QRText = payment.Payload
	if h.linkInQR {
		payment.QRText = h.links.page(id)
	}
	zone := v1alpha1.DefaultTimeZone
	if merchant := h.directory.Merchant(sess.MerchantID); merchant != nil {
		payment.AccentColor, payment.ReturnURL = merchant.Page.AccentColor, session.ReturnURL(id, merchant.Page.ReturnURL, sess.ReturnURL)
		zone = v1alpha1.TimeZone(merchant.TimeZone)
		if merchant.Page.ShowOrder {
			payment.Receipt.Order = sess.OrderRef
		}
	}
	if sess.Status == session.Completed {
		payment.Receipt.PaidAt = sess.EndedAt.In(zone.Location())
	}
	return payment, nil
}

// maxRefused is how many refused payments a page shows, the last ones.
const maxRefused = 5

// refused reads the payments that a session did not take, in turn with other payers. A page shows no more of them than whose they are knows:
// their amounts.
func (h *Handler) refused(r *http.Request, id session.ID) (payments []page.RefusedPayment, err error) {
	payers := h.queues.to(h.store.Server(r.Context(), id))
	if err := payers.enter(r.Context()); err != nil {
		return nil, err
	}
	defer func() { payers.leave(err) }()
	story, err := h.store.ReadStory(r.Context(), id)
	if err != nil {
		return nil, err
	}
	for _, refused := range story.Refused[max(0, len(story.Refused)-maxRefused):] {
		payments = append(payments, page.RefusedPayment{
			AmountCents: refused.AmountCents, Currency: refused.Currency, WentBack: session.SumRefunds(refused.Refunds) >= refused.AmountCents,
		})
	}
	return payments, nil
}

// Asset serves the stylesheet and the script of pages.
func (h *Handler) Asset(_ *web.Event, w http.ResponseWriter, r *http.Request) error {
	asset, current, found := h.pages.Asset(r.PathValue("version"), r.PathValue("file"), r.URL.Query().Get("accent"))
	if !found {
		return web.ErrNoRoute
	}
	header := w.Header()
	if current {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	header.Set("Vary", "Accept-Encoding")
	if asset.Gzipped == nil {
		h.write(w, r, http.StatusOK, asset.ContentType, asset.Content)
		return nil
	}
	writeAsset(w, r, http.StatusOK, asset)
	return nil
}

// writeAsset answers with what is compressed already, as the client accepts it.
func writeAsset(w http.ResponseWriter, r *http.Request, status int, asset page.Asset) {
	content := asset.Content
	w.Header().Set("Content-Type", asset.ContentType)
	if acceptsGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		content = asset.Gzipped
	}
	w.WriteHeader(status)
	_, _ = w.Write(content) // an error: the client has disconnected
}

// Widget serves the script that shops include in pages of other origins. Browsers keep it for five minutes, so that a fix reaches
// every shop soon.
func (h *Handler) Widget(_ *web.Event, w http.ResponseWriter, r *http.Request) error {
	asset := h.pages.Widget()
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
func (h *Handler) write(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	if !acceptsGzip(r) {
		w.WriteHeader(status)
		_, _ = w.Write(body) //nolint:gosec // html/template has escaped what is not ours; an error: the client has disconnected
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	compressor, _ := h.compressors.Get().(*gzip.Writer)
	defer h.compressors.Put(compressor)
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
