"""All kinds of images in all numbers of channels, against Pillow's pixels."""

from __future__ import annotations

import io
import re
import struct
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tests.harness import pictures

from infeed_server.transforms import DecodeImage
from infeed_server.transforms.images import gif
from infeed_server.transforms.images.png import decode_png
from infeed_server.transforms.images.traced import trace

RNG = np.random.default_rng(15)
HEIGHT, WIDTH = 13, 19
RGB = RNG.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
ALPHA = RNG.integers(0, 256, (HEIGHT, WIDTH, 1), np.uint8)
RGBA = np.concatenate([RGB, ALPHA], 2)
GREY = RGB[..., 0]
WIDE = RNG.integers(0, 1 << 16, (HEIGHT, WIDTH, 4), np.uint16)
PALETTE = RNG.integers(0, 256, (256, 3), np.uint8)
SMOOTH = np.asarray(Image.fromarray(RGB).resize((90, 70), Image.Resampling.BICUBIC))

PNG_TRANSPARENT = (b"tRNS", bytes(range(0, 250, 50)))
GAMMA = (b"gAMA", (45455).to_bytes(4, "big"))


def samples(bits: int, channels: int = 1) -> Any:
    return RNG.integers(0, 1 << bits, (HEIGHT, WIDTH, channels)).astype(np.uint16)


def colours(bits: int) -> tuple[bytes, bytes]:
    return b"PLTE", PALETTE[: 1 << bits].tobytes()


def pngs() -> dict[str, bytes]:
    kinds = {
        **{f"grey {bits}": pictures.png(samples(bits), bits, 0) for bits in (1, 2, 4, 8, 16)},
        # Pillow scales the grey of fewer bits, and not the transparent one, so it has to be 0.
        **{
            f"grey {bits} transparent": pictures.png(samples(bits), bits, 0, (b"tRNS", b"\0\0"))
            for bits in (1, 2, 4, 8)
        },
        **{
            f"palette {bits}": pictures.png(samples(bits), bits, 3, colours(bits))
            for bits in (1, 2, 4, 8)
        },
        **{
            f"palette {bits} transparent": pictures.png(
                samples(bits), bits, 3, colours(bits), (b"tRNS", bytes(range(1 << min(bits, 3))))
            )
            for bits in (1, 2, 4, 8)
        },
        "LA": pictures.png(samples(8, 2), 8, 4),
        "RGB": pictures.png(RGB, 8, 2),
        "RGB transparent": pictures.png(RGB, 8, 2, (b"tRNS", RGB[3, 4].astype(">u2").tobytes())),
        "RGB gamma": pictures.png(RGB, 8, 2, GAMMA),
        "RGBA": pictures.png(RGBA, 8, 6),
        "grey interlaced": pictures.png(samples(2), 2, 0, interlaced=True),
        "palette interlaced": pictures.png(samples(4), 4, 3, colours(4), interlaced=True),
        "RGB interlaced": pictures.png(RGB, 8, 2, interlaced=True),
        "RGB 16": pictures.png(WIDE[..., :3], 16, 2),
        "RGBA 16": pictures.png(WIDE, 16, 6),
        "RGB 16 interlaced": pictures.png(WIDE[..., :3], 16, 2, interlaced=True),
        "LA 16": pictures.png(WIDE[..., :2], 16, 4),
    }
    return {f"PNG {name}": contents for name, contents in kinds.items()}


def gifs() -> dict[str, bytes]:
    indices = samples(8)[..., 0]
    comment = b"!\xfe\x05hello\x03abc\0"
    application = b"!\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\0"
    later = pictures.gif_frame(np.zeros((40, 60), int))
    kinds = {
        "global": pictures.gif(indices, PALETTE),
        "global of 16": pictures.gif(indices % 16, PALETTE[:16]),
        "local": pictures.gif(indices, PALETTE, local=True),
        "small frame": pictures.gif(indices, PALETTE, canvas=(31, 40), corner=(5, 7)),
        "small frame at the end": pictures.gif(indices, PALETTE, canvas=(31, 40), corner=(18, 21)),
        "large frame": pictures.gif(indices, PALETTE, canvas=(5, 6)),
        "transparent": pictures.gif(indices % 8, PALETTE[:8], transparent=3),
        "transparent local": pictures.gif(indices % 8, PALETTE[:8], transparent=0, local=True),
        "interlaced": pictures.gif(indices, PALETTE, interlaced=True),
        "extensions": pictures.gif(indices, PALETTE, extensions=comment + application),
        "animated": pictures.gif(indices, PALETTE, canvas=(40, 60), later=later),
        "of Pillow": pictures.encode("GIF", RGB),
    }
    return {f"GIF {name}": contents for name, contents in kinds.items()}


def bmps() -> dict[str, bytes]:
    usual, reverse = (0xFF0000, 0xFF00, 0xFF), (0xFF, 0xFF00, 0xFF0000)
    grey = np.arange(256, dtype=np.uint8)[:, np.newaxis].repeat(3, 1)
    kinds = {
        "L of Pillow": pictures.encode("BMP", GREY),
        "1 of Pillow": pictures.encode("BMP", Image.fromarray(GREY > 99)),
        "P of Pillow": pictures.encode("BMP", Image.fromarray(RGB).quantize(20)),
        "RGB of Pillow": pictures.encode("BMP", RGB),
        "RGBA of Pillow": pictures.encode("BMP", RGBA),
        "grey 8": pictures.bmp(samples(8)[..., 0], 8, palette=grey),
        "grey 4": pictures.bmp(samples(4)[..., 0], 4, palette=grey[::17]),
        "few colours": pictures.bmp(samples(2)[..., 0], 4, palette=PALETTE[:4]),
        "24 masks": pictures.bmp(RGB, 24, compression=3, masks=usual),
        "32 masks": pictures.bmp(RGBA, 32, compression=3, masks=usual),
        "32 masks reversed": pictures.bmp(
            RGBA, 32, compression=3, masks=(*reverse, 0xFF000000), header_bytes=56
        ),
        "32 masks alpha": pictures.bmp(
            RGBA, 32, compression=3, masks=(*usual, 0xFF000000), header_bytes=124
        ),
        "32 masks alpha first": pictures.bmp(
            RGBA,
            32,
            compression=3,
            masks=(0xFF000000, 0xFF0000, 0xFF00, 0xFF),
            header_bytes=108,
        ),
    }
    for bits in (1, 4, 8):
        for header_bytes in (12, 40, 64, 108, 124):
            kinds[f"palette {bits}, header {header_bytes}"] = pictures.bmp(
                samples(bits)[..., 0], bits, palette=PALETTE[: 1 << bits], header_bytes=header_bytes
            )
    for width in range(1, 9):
        for bits in (1, 4, 8):
            kinds[f"palette {bits}, width {width}, top-down"] = pictures.bmp(
                samples(bits)[:, :width, 0], bits, palette=PALETTE[: 1 << bits], top_down=True
            )
    for top_down in (False, True):
        for pixels in (RGB, RGB[:, :1], RGB[:1, :2], RGBA):
            bits = 8 * pixels.shape[2]
            name = f"{bits}, {pixels.shape[:2]}, {'top-down' if top_down else 'bottom-up'}"
            kinds[name] = pictures.bmp(pixels, bits, top_down=top_down)
    kinds["24, header 12"] = pictures.bmp(RGB, 24, header_bytes=12)
    kinds["24, bytes behind it"] = pictures.bmp(RGB, 24) + b"rest"
    return {f"BMP {name}": contents for name, contents in kinds.items()}


def webps() -> dict[str, bytes]:
    opaque = pictures.animation(RGB, 255 - RGB)
    # Its flags state an animation and no alpha, which TensorFlow alone decodes wrongly.
    assert opaque[20] == 0x02
    kinds = {
        "lossless": pictures.encode("WEBP", RGB, lossless=True),
        "lossless alpha": pictures.encode("WEBP", RGBA, lossless=True, exact=True),
        "lossy": pictures.encode("WEBP", SMOOTH),
        "lossy alpha": pictures.encode("WEBP", RGBA),
        "animated": opaque,
        "animated alpha": pictures.animation(RGBA, 255 - RGBA),
    }
    return {f"WebP {name}": contents for name, contents in kinds.items()}


FEWER = {"PNG LA 16": [0, 3], "BMP grey 4": [0]}
"""Channels that the decoder keeps of Pillow's, which repeat the others."""

EXACT = pngs() | gifs() | bmps() | webps()


def with_pillow(contents: bytes, channels: int) -> Any:
    """Returns Pillow's pixels [height, width, channels], uint8."""
    image = Image.open(io.BytesIO(contents))
    image.load()
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.format == "GIF":
        # Pillow has colours where there is nothing.
        left, top, right, bottom = image.dispose_extent
        rgba = np.zeros((image.height, image.width, 4), np.uint8)
        rgba[top:bottom, left:right] = np.asarray(image.convert("RGBA"))[top:bottom, left:right]
        rgba[rgba[..., 3] == 0] = 0
    else:
        rgba = np.asarray(image.convert("RGBA"))
    if channels == 0 and image.mode in ("1", "L", "LA", "RGBA"):
        pixels = np.asarray(image.convert("L") if image.mode == "1" else image)
        return pixels.reshape(*pixels.shape[:2], -1)
    if channels == 0 and image.mode == "P" and "transparency" in image.info:
        channels = 4 if image.format == "PNG" else 3
    if channels == 4:
        return rgba
    rgb = Image.fromarray(rgba[..., :3])
    return np.asarray(rgb.convert("L"))[..., np.newaxis] if channels == 1 else np.asarray(rgb)


def decode_each(run_each: Any, files: dict[str, bytes], **options: Any) -> dict[str, Any]:
    contents = np.array(list(files.values()), object)
    results = run_each(DecodeImage(field="x", **options), {"x": contents}, [(0, 0)] * len(contents))
    return {name: result["x"] for name, result in zip(files, results, strict=True)}


@pytest.mark.parametrize("channels", [0, 1, 3, 4])
def test_pixels_are_those_of_pillow(run_each: Any, channels: int) -> None:
    wrong = []
    for name, result in decode_each(run_each, EXACT, channels=channels).items():
        expected = with_pillow(EXACT[name], channels)
        if channels == 0:
            expected = expected[..., FEWER.get(name, slice(None))]
        if result.shape != expected.shape or (result != expected).any():
            wrong.append(name)
    assert not wrong


def refused() -> dict[str, tuple[bytes, str]]:
    """Returns files that are not decoded, with what the error states."""
    indices = samples(8)[..., 0]
    whole = pictures.bmp(indices, 8, palette=PALETTE)
    no_image = pictures.gif(indices, PALETTE)[: 13 + 768] + b";"
    rle = {"palette": PALETTE, "data": bytes(90)}
    lossless = pictures.encode("WEBP", RGB, lossless=True)
    return {
        "RLE8": (pictures.bmp(indices, 8, compression=1, **rle), r"compressed BMP.*\b1\b"),
        "RLE4": (pictures.bmp(indices, 4, compression=2, **rle), r"compressed BMP.*\b2\b"),
        "JPEG in BMP": (pictures.bmp(RGB, 24, compression=4), r"compressed BMP.*\b4\b"),
        "masks with a palette": (
            pictures.bmp(indices, 8, palette=PALETTE, compression=3),
            r"compressed BMP.*\b3\b",
        ),
        "16 bits": (pictures.bmp(RGB[..., :2], 16), r"number of bits per pixel.*\b16\b"),
        "2 bits": (pictures.bmp(indices % 4, 2, palette=PALETTE[:4]), r"bits per pixel.*\b2\b"),
        "masks of 10 bits": (
            pictures.bmp(RGBA, 32, compression=3, masks=(0x3FF00000, 0xFFC00, 0x3FF)),
            rf"not whole bytes.*\b{0x3FF00000}\b",
        ),
        "masks behind the pixel": (
            pictures.bmp(RGB, 24, compression=3, masks=(0xFF000000, 0xFF00, 0xFF)),
            "not whole bytes",
        ),
        "header of 16 bytes": (
            whole[:14] + b"\x10\0\0\0" + whole[18:],
            r"unknown header.*\b16\b",
        ),
        "index outside of the palette": (
            pictures.bmp(indices, 8, palette=PALETTE[:9]),
            r"pixel outside of its palette.*\b9\b",
        ),
        "no palette": (
            pictures.bmp(indices, 8),
            r"without its palette.*\b54\b",
        ),
        "truncated BMP": (
            whole[:-5],
            rf"truncated BMP.*\b{len(whole) - 1}\b",
        ),
        "header alone": (whole[:54], "truncated BMP"),
        "BMP without rows": (pictures.bmp(indices[:0], 8, palette=PALETTE), "without pixels"),
        "GIF without an image": (no_image, rf"GIF without an image.*\b{len(no_image)}\b"),
        "GIF with endless extensions": (
            no_image[:-1] + b"!\xfe" + b"\x01a" * 2000 + no_image,
            "GIF without an image",
        ),
        "truncated GIF": (pictures.gif(indices, PALETTE)[:-50], "GIF"),
        "truncated PNG": (pictures.png(RGB, 8, 2)[:-50], "PNG"),
        "truncated WebP": (pictures.encode("WEBP", RGB)[:-50], "WebP"),
        "WebP without a chunk": (
            lossless[:12] + lossless[20:],
            r"without its first chunk.*\b47\b",
        ),
        "TIFF": (pictures.encode("TIFF", RGB), "must be a JPEG, PNG, GIF, BMP or WebP"),
        "JPEG XL": (b"\xff\x0a" + bytes(50), "must be a JPEG, PNG, GIF, BMP or WebP"),
        "nothing": (b"", r"is an empty file; bytes:\W+0"),
        "text": (b"hello", r"or WebP; its first bytes are\W+(b'hel'|\[?104 101 108)"),
        "two letters": (b"BM", r"unknown header.*\b0\b"),
        "six letters": (b"GIF89a", "GIF without an image"),
    }


@pytest.mark.parametrize("channels", [0, 4])
def test_what_cannot_be_decoded_is_refused_by_name(channels: int) -> None:
    step = DecodeImage(field="x", channels=channels)  # type: ignore[arg-type]

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)], autograph=False)
    def decode(contents: tf.Tensor) -> tf.Tensor:
        return step.apply({"x": contents}, tf.constant([0, 0], tf.int64))["x"]

    for name, (contents, words) in refused().items():
        with pytest.raises(tf.errors.InvalidArgumentError) as failure:
            decode(contents)
        assert re.search(words, str(failure.value), re.DOTALL), (name, failure.value)
        # As the engine examines a bad sample.
        with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)" + words) as failure:
            step.apply({"x": tf.constant(contents)}, tf.constant([0, 0], tf.int64))
        assert "Graph execution error" not in str(failure.value)


@pytest.mark.parametrize("block_bytes", [1, 100, 254, 255])
@pytest.mark.parametrize("local", [True, False])
def test_tensorflow_gets_the_first_frame_of_a_gif_alone(
    run_eagerly: Any, monkeypatch: pytest.MonkeyPatch, block_bytes: int, local: bool
) -> None:
    monkeypatch.setattr(gif, "_WINDOW_BYTES", 300)  # less than the frame
    decode, files = tf.io.decode_image, []

    def record(contents: tf.Tensor, **options: Any) -> Any:
        files.append(contents.numpy())
        return decode(contents, **options)

    monkeypatch.setattr(tf.io, "decode_image", record)
    # Far larger than the first, and with little memory only because it is torn.
    later = struct.pack("<BHHHHB", ord(","), 0, 0, 60_000, 60_000, 0) + b"\x08\x01a"
    indices = samples(8)[..., 0]
    alone, both = (
        pictures.gif(indices, PALETTE, local=local, block_bytes=block_bytes, later=more)
        for more in (b"", later)
    )
    result = run_eagerly(DecodeImage(field="x"), {"x": both})["x"]
    assert files == [alone]
    np.testing.assert_array_equal(result, PALETTE[indices])


def test_gif_with_irregular_blocks_is_refused_after_some(
    run_eagerly: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two runs: blocks of 100 bytes, and a last one.
    contents = pictures.gif(samples(8)[..., 0], PALETTE, block_bytes=100)
    monkeypatch.setattr(gif, "_MAX_RUNS", 2)
    run_eagerly(DecodeImage(field="x"), {"x": contents})
    monkeypatch.setattr(gif, "_MAX_RUNS", 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="GIF"):
        run_eagerly(DecodeImage(field="x"), {"x": contents})


def test_decoders_are_traced_once_for_equal_options() -> None:
    first, second = (DecodeImage(field="x", channels=3) for _ in range(2))
    specs = (tf.TensorSpec([], tf.string),)
    traced = trace(decode_png, specs, (first.decoding,))
    assert trace(decode_png, specs, (second.decoding,)) is traced
    other = DecodeImage(field="x", channels=4)
    assert trace(decode_png, specs, (other.decoding,)) is not traced


def with_pillow_16(contents: bytes) -> Any:
    """Returns the pixels of a grey PNG of 16 bits: of others Pillow has the high bytes only."""
    return np.asarray(Image.open(io.BytesIO(contents)))[..., np.newaxis]


def test_uint16_keeps_all_bits(run_each: Any) -> None:
    files = {name: EXACT[f"PNG {name}"] for name in ("grey 16", "RGB 16", "RGBA 16", "LA 16")}
    results = decode_each(run_each, files, channels=0, dtype="uint16")
    np.testing.assert_array_equal(results["grey 16"], with_pillow_16(files["grey 16"]))
    for name, count in (("RGB 16", 3), ("RGBA 16", 4), ("LA 16", 2)):
        np.testing.assert_array_equal(results[name], WIDE[..., :count])


@pytest.mark.parametrize("channels", [1, 4])
def test_uint16_of_8_bits_is_scaled_as_tensorflow_does(run_each: Any, channels: int) -> None:
    files = {name: contents for name, contents in EXACT.items() if "16" not in name.split()}
    files["JPEG"] = pictures.encode("JPEG", SMOOTH)
    narrow = decode_each(run_each, files, channels=channels)
    for name, wide in decode_each(run_each, files, channels=channels, dtype="uint16").items():
        factor = 257 if name.startswith("PNG") else 256
        assert wide.dtype == np.uint16
        expected = narrow[name].astype(np.uint16) * factor
        if name.startswith("PNG") and channels == 1:
            # Rounded once in each type.
            assert np.abs(wide.astype(int) - expected).max() <= 129
        else:
            np.testing.assert_array_equal(wide, expected, name)


def test_factors_of_uint16_are_those_of_tensorflow(run_each: Any) -> None:
    names = ("PNG RGB", "GIF global", "BMP RGB of Pillow")
    files = {name: EXACT[name] for name in names} | {"JPEG": pictures.encode("JPEG", SMOOTH)}
    for name, result in decode_each(run_each, files, dtype="uint16").items():
        expected = tf.io.decode_image(files[name], 3, tf.uint16, expand_animations=False)
        np.testing.assert_array_equal(result, expected)


def test_luma_of_16_bits_is_exact(run_each: Any) -> None:
    files = {"RGB": EXACT["PNG RGB 16"]}
    result = decode_each(run_each, files, channels=1, dtype="uint16")["RGB"]
    weights = np.array([19595, 38470, 7471], np.int64)
    np.testing.assert_array_equal(result[..., 0], (WIDE[..., :3] @ weights + 32768) >> 16)
