package page

import (
	"bytes"
	"encoding/json"
	"fmt"

	"golang.org/x/text/language"

	"github.com/merchant-operator/merchant-operator/internal/locale"
	"github.com/merchant-operator/merchant-operator/internal/money"
)

// texts are all texts of the pages in one language, texts/<language>.json.
type texts struct {
	TestMode        string `json:"testMode"`
	TestPay         string `json:"testPay"`
	TestDecline     string `json:"testDecline"`
	PaymentTo       string `json:"paymentTo"`
	Scan            string `json:"scan"`
	ScanText        string `json:"scanText"`
	OpenAppText     string `json:"openApp"`
	QRCode          string `json:"qrCode"`
	TimeLeftText    string `json:"timeLeft"`
	WhenLoaded      string `json:"whenLoaded"`
	Updates         string `json:"updates"`
	Minutes5        string `json:"minutes5"`
	Minute1         string `json:"minute1"`
	TimeOver        string `json:"timeOver"`
	Waiting         string `json:"waiting"` // of the widget
	Paid            string `json:"paid"`
	PaidText        string `json:"paidText"`
	Tax             string `json:"tax"`
	Tip             string `json:"tip"`
	PaidAt          string `json:"paidAt"`
	Reference       string `json:"reference"`
	Order           string `json:"order"`
	Refunded        string `json:"refunded"`
	Received        string `json:"received"` // {amount} of a payment that the session did not take
	WentBack        string `json:"wentBack"`
	ReceivedAnother string `json:"receivedAnother"` // of a session that another payment has paid
	AnotherWentBack string `json:"anotherWentBack"`
	Failed          string `json:"failed"`
	FailedText      string `json:"failedText"`
	Expired         string `json:"expired"`
	Cancelled       string `json:"cancelled"`
	CancelledText   string `json:"cancelledText"`
	AlreadyPaid     string `json:"alreadyPaid"`
	LateRefund      string `json:"lateRefund"`
	NotPaid         string `json:"notPaid"`
	NotFound        string `json:"notFound"`
	NotFoundText    string `json:"notFoundText"`
	Limited         string `json:"limited"`
	LimitedText     string `json:"limitedText"`
	Unavailable     string `json:"unavailable"`
	UnavailableText string `json:"unavailableText"`
	CheckAgain      string `json:"checkAgain"`
	NotConnected    string `json:"notConnected"`
	BackToShop      string `json:"backToShop"`
}

// translation is one language of the pages.
type translation struct {
	texts

	Lang string // BCP 47
	Dir  string // ltr or rtl

	amounts money.Formatter
}

// readTranslations returns all languages, the default first, and what picks one of them.
func readTranslations() ([]translation, locale.Matcher, error) {
	tags, err := locale.Languages(files, "texts")
	if err != nil {
		return nil, locale.Matcher{}, err
	}
	all := make([]translation, len(tags))
	for i, tag := range tags {
		if all[i], err = readTranslation(tag); err != nil {
			return nil, locale.Matcher{}, fmt.Errorf("read the texts in %s: %w", tag, err)
		}
	}
	return all, locale.NewMatcher(tags), nil
}

func readTranslation(tag language.Tag) (translation, error) {
	content, err := files.ReadFile("texts/" + tag.String() + ".json")
	if err != nil {
		return translation{}, err
	}
	in := translation{Lang: tag.String(), Dir: locale.Direction(tag), amounts: money.NewFormatter(tag)}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	return in, decoder.Decode(&in.texts)
}

// translation returns the best language for a header Accept-Language, however malformed it is.
func (p *Pages) translation(acceptLanguage string) translation {
	return p.translations[p.languages.Match(acceptLanguage)]
}
